"""A tiny run of the whole study: claims, measurements and figures fit together."""

from dataclasses import replace

import pytest
import torch

from circuits.claims import Claim, judge
from circuits.confirm import confirm_lab
from circuits.studies.symbols import STUDY
from circuits.studies.symbols.claims.curves import value
from circuits.studies.symbols.claims.identity import logarithms
from circuits.studies.symbols.lab import SymbolsLab, crossing
from probes.figures import save
from tests.figure_laws import cut_texts
from trained.config import as_dict
from trained.errors import BadInput
from trained.store import Run
from trained.symbols.arms import arm_name, arms
from trained.symbols.config import (
    Config,
    Copying,
    LastLayer,
    Psychometric,
    Recall,
    Shape,
    Training,
)
from trained.symbols.presets import PRESETS, QUICK
from trained.symbols.setting import copying, perceptron, recalling, relation
from trained.symbols.theory_config import FirstStep, Kernel
from trained.trainer import Engine
from trained.training import train

PAPER = PRESETS["paper"].config
TINY = Config(
    task="same_different",
    n=(16, 64, 256),
    small_n=(),
    mlp_n=(16, 64),
    both_tasks=("majority-4@16",),
    plain_tasks=("random-2-5-2-0@512", "random-2-5-2-2@512"),
    variants=("depth1", "networks"),
    null_seeds=None,
    model=Shape(d_model=8, n_heads=2, d_head=4),
    training=Training(
        lrs=(1e-2,),
        max_steps=8,
        mlp_steps=5,
        mlp_sgd_steps=5,
        n_test=20,
        held_out_symbols=20,
        record_every=4,
    ),
    last_layer=LastLayer(n=64, epochs=2),
    copying=Copying(
        d_model=(4, 16),
        n=(4, 8, 12),
        span_n=4,
        steps=3,
        lrs=(1e-3, 1e-2),
        n_heads=2,
        d_head=4,
        record_every=1,
    ),
    recall=Recall(n=(16,), max_steps=2, d_model=8, n_heads=2, d_head=4),
    psychometric=Psychometric(
        n=(16, 128), d_model=8, n_heads=2, d_head=4, steps=2, n_test=20
    ),
    kernel=Kernel(
        matrix_tasks=("same_different", "random-3-4-2-1"),
        draws=1,
        refinements=0,
        n=(16, 64),
        n_test=60,
        bank_d=(16, 128),
        bank_heads=400,
        n_banks=4,
    ),
    first_step=FirstStep(d_model=(16, 64, 96, 128, 256), draws=2),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> SymbolsLab:
    manifest = {
        "study": "symbols",
        "preset": "quick",
        "config": as_dict(TINY),
        "seeds": [0, 1],
        "device": "cpu",
        "environment": {},
    }
    run = Run.create(tmp_path_factory.mktemp("symbols") / "run", manifest)
    train(run, arms(TINY), engine=Engine(batching="vmap"))
    return SymbolsLab(STUDY, run)


def claims(config: Config) -> dict[str, Claim]:
    return {claim.id: claim for claim in STUDY.claims_at(config)}


def test_every_claim_is_measured_or_says_why_not(lab: SymbolsLab) -> None:
    done = confirm_lab(lab)
    for verdict in done.verdicts:
        if verdict.claim.not_tested:
            assert verdict.word == "not tested"
        elif verdict.word == "not tested":
            assert verdict.reason.startswith("precondition"), verdict.reason
        else:
            assert not any(null.reason for null in verdict.nulls), verdict.nulls


def test_the_theory_holds_even_here(lab: SymbolsLab) -> None:
    for name in ("symbols.kernel.nonsingular", "symbols.kernel.conditioning"):
        assert judge(claims(TINY)[name], lab).passed, name
    copy = judge(claims(TINY)["symbols.copy.first-step.b"], lab)
    assert min(copy.values) > 0.5


def test_a_wider_bank_is_nearer_and_the_wrong_formula_is_not(lab: SymbolsLab) -> None:
    wide, narrow = lab.theory.bank_errors(128), lab.theory.bank_errors(16)
    assert sum(wide["right"]) < sum(narrow["right"])
    for right, half in zip(
        lab.theory.bank_slope(), lab.theory.bank_slope("half"), strict=True
    ):
        assert right < half
    # Two widths: the slope is the logarithm of the ratio, a factor of 8 apart.
    pairs = zip(wide["right"], narrow["right"], strict=True)
    ratios = [torch.tensor(a / b).log() / torch.tensor(8.0).log() for a, b in pairs]
    assert lab.theory.bank_slope() == pytest.approx(
        [float(r) for r in ratios], rel=1e-4
    )


def test_regression_needs_the_kernel_the_labels_and_the_symbols(
    lab: SymbolsLab,
) -> None:
    theory = lab.theory
    few, many = (theory.largest(n)[0] for n in (16, 64))
    assert many < few
    assert theory.largest(64, "mlp")[0] > 0.5
    assert theory.largest(64, "no beta")[0] > 0.5
    assert theory.largest(64, taught="shuffled")[0] > 0.5
    draw = theory.draws[0]
    plain, narrow = (
        theory.mean_error("same_different", 64, draw, "clean", symbols)
        for symbols in (None, 4)
    )
    assert narrow > plain
    assert theory.mean_error("same_different", 64, draw, "nearest noisy") > 0.1


def test_parameters_templates_and_strings_are_drawn(lab: SymbolsLab) -> None:
    first, second = lab.theory.draws
    kernels = [lab.theory.drawn_kernel(draw) for draw in (first, second)]
    assert kernels[0].attention.beta != kernels[1].attention.beta
    assert lab.theory.drawn_kernel(first, beta=False).attention.beta == 0
    tasks = [lab.theory.drawn_task("random-3-4-2-1", d) for d in (first, second)]
    assert tasks[0].templates != tasks[1].templates
    assert max(lab.theory.singular("no beta")) < 1
    assert max(lab.theory.singular("mlp")) < 1


def test_limits_of_the_first_step_are_by_group_and_gamma(lab: SymbolsLab) -> None:
    found = lab.theory.limits()
    # A position embedding of strength 0 has no rate: 4 groups, 3 gammas, one less.
    assert len(found) == 11
    assert all(len(values) == 4 for values in found.values())
    assert min(lab.theory.limits_in_errors(", seen")) > 2
    assert min(lab.theory.b_limits_in_errors()) > 2


@pytest.mark.parametrize("kind", sorted(STUDY.figures))
def test_every_figure_is_drawn(lab: SymbolsLab, kind: str, tmp_path) -> None:
    figure = STUDY.figures[kind](lab)
    assert save(figure, tmp_path / f"{kind}.png", dpi=40).stat().st_size > 2000
    assert not cut_texts(figure)


def test_the_rate_is_chosen_on_validation_and_scores_at_its_best_step(
    lab: SymbolsLab,
) -> None:
    run, setting = lab.run, copying(TINY, 16, 12, "b")
    names = [arm_name(setting, lr) for lr in TINY.copying.lrs]
    by_rate = {name: run.metrics(name)["validation"] for name in names}
    best = min(by_rate, key=lambda name: float(by_rate[name][:, 1:].amin(1).mean()))
    assert lab.best_arm(setting) == best
    metrics = run.metrics(best)
    steps = metrics["validation"][:, 1:].argmin(1) + 1
    errors = metrics["test_error"]
    expected = [float(errors[seed, step]) for seed, step in enumerate(steps)]
    assert lab.scores(setting, "test_error") == expected
    assert lab.last_scores(setting, "test_error") == errors[:, -1].tolist()


def test_an_untrained_lab_has_the_models_and_scores_of_the_start(
    lab: SymbolsLab,
) -> None:
    setting, start = relation(TINY, 16, "a"), lab.untrained()
    losses = start.over(setting, lambda s: s.loss())
    assert losses == pytest.approx(start.scores(setting), abs=1e-5)
    assert start.scores(setting) == start.last_scores(setting)
    assert losses != pytest.approx(lab.over(setting, lambda s: s.loss()))
    assert start.scores(copying(TINY, 16, 12, "b"), "test_error") > [0.5, 0.5]


def test_examples_are_test_strings(lab: SymbolsLab) -> None:
    arm = lab.best_arm(relation(TINY, 16))
    assert len(lab.examples(arm, 0)) == 20
    assert lab.models(arm).pattern().values.shape == (2, 2, 3, 3)


def test_models_are_had_by_setting_or_by_name(lab: SymbolsLab) -> None:
    setting = relation(TINY, 16)
    by_setting, by_name = (lab.specimens(x) for x in (setting, lab.best_arm(setting)))
    assert [s.model for s in by_setting] == [s.model for s in by_name]
    with pytest.raises(BadInput, match="unknown arm 'vanilla'; choose from: "):
        lab.specimens("vanilla")


def test_crossings_by_hand() -> None:
    errors = torch.tensor([1.0, 0.75, 0.25])
    assert crossing((16, 64, 256), errors, 0.5) == pytest.approx(128)
    assert crossing((16, 64, 256), errors, 0.75) == pytest.approx(64)
    assert crossing((16, 64, 256), errors, 0.1) == float("inf")
    assert crossing((16, 64, 256), errors - 0.6, 0.5) == 16


@pytest.mark.parametrize("factor", [2, 8])
def test_the_ratio_is_that_of_shifted_curves(
    lab: SymbolsLab, monkeypatch: pytest.MonkeyPatch, factor: int
) -> None:
    curve = {16: 1.0, 64: 0.75, 256: 0.25}

    def scores(setting, _metric="test"):
        given = setting.n if setting.identity == "a" else setting.n // factor
        known = [n for n in curve if n <= given]
        return [curve[max(known)] if known else 1.0, 1.0]

    sizes = tuple(sorted({n * f for n in curve for f in (1, factor)}))
    other = lab.other(config=replace(QUICK, n=sizes, small_n=()))
    monkeypatch.setattr(other, "scores", scores)
    first, second = other.data_ratio()
    assert first == pytest.approx(factor, rel=0.3)
    assert second == 0  # the modified model never gets there
    assert logarithms([100.0, 0.0]) == [2, -float("inf")]


def test_the_n_at_half_error_is_compared_by_width(
    lab: SymbolsLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # n at 50 % error: 4 for the narrow, 12 or more for the wide.
    def scores(setting, _metric="test"):
        return [0.1, 0.1] if setting.d_model == 4 else [0.9, 1.0]

    monkeypatch.setattr(lab, "scores", scores)
    assert lab.copy_growth(4, 16) == [3.0, 3.0]


def test_areas_are_the_farthest_over_checkpoints(lab: SymbolsLab) -> None:
    setting = perceptron(TINY, "aba_abb", 16)
    recorded = lab.records(lab.best_arm(setting))["test_area_score"]
    assert recorded.shape[1] == 6
    assert lab.farthest_area(setting) == recorded[:, 1:].abs().amax(1).tolist()


def test_the_tree_has_every_leaf_of_the_paper() -> None:
    for preset in PRESETS.values():
        found = claims(preset.config)
        paper = [claim for claim in found.values() if claim.origin == "paper"]
        assert sum(claim.weight for claim in paper) == 71
        assert sum(c.kind == "theory" for c in paper) == 8
        assert not any("not measured yet" in c.not_tested for c in found.values())


def test_what_a_preset_cannot_decide_says_where_it_is_decided() -> None:
    quick, paper = claims(QUICK), claims(PAPER)
    for claim in quick.values():
        if claim.not_tested and claim.origin == "paper":
            assert "preset paper" in claim.not_tested or "GPU" in claim.not_tested
    for name, claim in paper.items():
        if claim.not_tested and claim.origin == "paper":
            assert "--preset gpu --device cuda" in claim.not_tested, name
    gpu = claims(PRESETS["gpu"].config)
    assert not any(c.not_tested for c in gpu.values() if c.origin == "paper")


def test_claims_follow_the_configuration() -> None:
    asked = claims(replace(QUICK, task="same_different"))
    assert "aba_abb" in asked["symbols.vanilla.curve"].not_tested
    assert "symbols.ours.vanilla" in asked
    quick = claims(QUICK)
    assert not quick["symbols.vanilla.curve"].not_tested
    assert not quick["symbols.recall.curve"].not_tested
    assert "symbols.ours.vanilla" not in quick
    flat = claims(replace(QUICK, model=Shape(depth=1)))
    assert flat["symbols.identity.cause"].not_tested == "needs a second layer"
    assert "symbols.ours.pattern" not in flat
    assert "symbols.ours.match" not in quick
    few = claims(replace(QUICK, training=replace(QUICK.training, train_alphabet=8)))
    assert "train_alphabet = 8" in few["symbols.vanilla.curve"].not_tested
    noisy = claims(replace(QUICK, training=replace(QUICK.training, label_noise=0.1)))
    assert "label_noise = 0.1" in noisy["symbols.identity.tasks.aba"].not_tested


def bound(config: Config, name: str) -> float:
    """The number in the first expectation of a claim."""
    return float(claims(config)[name].conditions[0].expected.split()[-1])


def test_expectations_follow_the_configuration() -> None:
    # The more of the width the seen symbols span, the smaller a gap is left.
    span = "symbols.copy.span"
    assert bound(QUICK, span) == 0.3
    assert bound(replace(QUICK, copying=Copying(d_model=(32, 64))), span) < 0.2
    spanned = claims(replace(QUICK, copying=Copying(d_model=(8, 16))))
    assert "nearly span" in spanned[span].not_tested
    assert "known at d = 64 and 256" in spanned["symbols.copy.inverse"].not_tested
    # A tenfold need cannot be seen on a curve that is shorter than that.
    short = claims(replace(QUICK, n=(64, 256)))
    assert "needs n up to 20 times" in short["symbols.identity.ratio"].not_tested
    assert "needs n = 64 and n = 1024" in short["symbols.vanilla.curve"].not_tested
    lower = claims(replace(QUICK, level=0.2))
    assert "level = 0.2" in lower["symbols.identity.ratio"].not_tested
    heads = claims(replace(QUICK, kernel=Kernel(bank_heads=100)))
    assert "bank_heads" in heads["symbols.kernel.limit"].not_tested
    fewer = claims(replace(QUICK, kernel=Kernel(n=(64, 256))))
    assert "needs kernel.n" in fewer["symbols.kernel.regression"].not_tested


def test_expectations_at_the_papers_size_are_its_numbers() -> None:
    curve = claims(PAPER)["symbols.vanilla.curve"]
    expected = {c.name: c.expected for c in curve.conditions}
    assert expected["n = 512"] == "in [0.325, 0.975]"
    assert expected["n = 64"] == "in [0.5, 1.5]"
    assert curve.paper == 0.125
    assert claims(QUICK)["symbols.vanilla.curve"].conditions[0].expected == "<= 0.6"
    assert bound(PAPER, "symbols.identity.tasks.aba") == 0.2
    assert bound(QUICK, "symbols.identity.tasks.aba") == 0.45
    assert value("majority-6", "ab", 2048) == 0.15
    assert value("majority-6", "ab", 2049) is None
    assert value("recall", "ab", 4096) == 0.108


def test_every_measured_claim_has_a_null() -> None:
    for preset in PRESETS.values():
        for claim in claims(preset.config).values():
            assert claim.nulls or claim.not_tested, claim.id


def test_recall_in_two_layers_is_ours() -> None:
    found = claims(replace(QUICK, recall=Recall(n=(4096,), depth=2)))
    assert "4 layers, this run 2" in found["symbols.recall.curve"].not_tested
    assert found["symbols.ours.recall"].origin == "ours"
    assert found["symbols.recall.roles"].origin == "ours"
    assert recalling(QUICK, 4096).depth == 4
