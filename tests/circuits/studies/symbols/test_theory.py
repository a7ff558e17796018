"""Kernels, copying and language: every claim is observed and judged."""

from pathlib import Path

import pytest

from circuits.claims import Claim, Observed, judge
from circuits.studies.symbols import copy_theory, kernel, language
from circuits.studies.symbols.claims_language import language as language_claims
from circuits.studies.symbols.claims_theory import theory
from circuits.studies.symbols.context import Context
from circuits.studies.symbols.figures import FIGURES
from probes.figures import save
from trained.config import as_dict
from trained.errors import BadInput
from trained.store import Run, read_tensors, write_tensors
from trained.symbols.config import PRESETS, Config
from trained.symbols.language import arm_name, language_arms
from trained.symbols.language_sizes import SIZES, LanguageSizes
from trained.symbols.lift import MlpKernel
from trained.symbols.tasks import task
from trained.trainer import Engine
from trained.training import train

SAME = task("same_different")
TINY = Config(
    kernel_tasks=("same_different", "aba_abb"),
    kernel_n=(16, 64),
    theory_d=(16, 256),
    language="tiny",
    language_steps=5,
)


@pytest.fixture(scope="module", autouse=True)
def _small() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "WIDE", 128)
        patch.setattr(kernel, "N_TEST", 60)
        small = LanguageSizes(8, 1, 2, 6, 4, 30, 400, 40, 1e-2)
        patch.setitem(SIZES, "tiny", small)
        yield


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    path = tmp_path_factory.mktemp("symbols")
    manifest = {
        "study": "symbols",
        "config": as_dict(TINY),
        "seeds": [0, 1],
        "environment": {"python": "3.x"},
    }
    run = Run.create(path, manifest)
    train(run, language_arms(TINY), engine=Engine(batching="loop"))
    return Context(run)


@pytest.fixture(scope="module")
def observed(context: Context) -> dict[str, Observed]:
    found: dict[str, Observed] = {}
    for topic in (kernel, copy_theory, language):
        found |= topic.observe(context)
    return found


def all_claims(config: Config) -> list[Claim]:
    return [*theory(config), *language_claims(config)]


def test_every_claim_is_observed(observed: dict[str, Observed]) -> None:
    verdicts = judge(all_claims(TINY), observed)
    assert all(len(verdict.observed.values) == 2 for verdict in verdicts)
    ids = {verdict.claim.id for verdict in verdicts}
    assert "symbols.regression.error" not in ids
    assert "symbols.kernel.nonsingular.aba_abb" in ids


def test_the_matrix_and_the_theorems_hold(observed: dict[str, Observed]) -> None:
    verdicts = judge(all_claims(TINY), observed)
    held = ("symbols.kernel.nonsingular", "symbols.kernel.perm", "symbols.copying")
    chosen = [v for v in verdicts if v.claim.id.startswith(held)]
    assert len(chosen) == 7
    assert all(verdict.passed for verdict in chosen)


def test_a_wider_bank_is_nearer_and_the_wrong_formula_is_not() -> None:
    wide, narrow = ([kernel.bank_errors(SAME, d, s) for s in (5, 6)] for d in (128, 16))
    assert sum(right for right, _ in wide) < sum(right for right, _ in narrow)
    assert min(wrong for _, wrong in wide) > 0.3


def test_regression_needs_the_transformer_kernel() -> None:
    mine = kernel.transformer_kernel(0)
    few, many = (kernel.regression(mine, SAME, n, 0)[0] for n in (32, 256))
    assert many < 0.3 < few < 1
    assert kernel.regression(MlpKernel(), SAME, 256, 0)[0] == pytest.approx(1, abs=0.1)


def test_knocking_out_zero_scalars_changes_nothing(
    context: Context, tmp_path: Path
) -> None:
    run = Run.create(tmp_path, context.run.manifest)
    name = arm_name("identity")
    source = context.run.path / name
    (tmp_path / name).mkdir()
    for file in source.iterdir():
        (tmp_path / name / file.name).write_bytes(file.read_bytes())
    assert language.knock_out(run, TINY, "identity", 0) != 1
    file = tmp_path / name / "weights-5.safetensors"
    tensors, _ = read_tensors(file)
    for key in tensors:
        if key.endswith(("attn.a", "attn.b")):
            tensors[key] = tensors[key] * 0
    write_tensors(file, tensors)
    assert language.knock_out(run, TINY, "identity", 0) == 1
    write_tensors(file, tensors | {"corpus": 255 - tensors["corpus"]})
    with pytest.raises(BadInput, match=r"library of Python 3\.x; use that version"):
        language.knock_out(run, TINY, "identity", 0)


@pytest.mark.parametrize("kind", ["kernel", "kernel-regression", "first-step"])
def test_the_figures_need_no_training(
    context: Context, kind: str, tmp_path: Path
) -> None:
    figure = FIGURES[kind](context.run)
    assert save(figure, tmp_path / f"{kind}.png", dpi=40).stat().st_size > 1000


@pytest.mark.parametrize("name", PRESETS)
def test_claims_of_the_presets_are_well_formed(name: str) -> None:
    found = all_claims(PRESETS[name].config)
    ids = [claim.id for claim in found]
    assert len(set(ids)) == len(ids)
    assert all(claim.kind == "theory" for claim in theory(PRESETS[name].config))
    reported = [c for c in found if c.id.startswith("symbols.language")]
    assert not any(claim.gated for claim in reported)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("kernel_tasks", (), "kernel_tasks is empty"),
        ("kernel_tasks", ("aba_abb", "aba_abb"), "one twice"),
        ("kernel_tasks", ("figure1",), "numbers for wildcards only"),
        ("kernel_tasks", ("random-9",), "9 templates, at most 8"),
        ("theory_d", (16, 64), "from at most 32 to at least 256"),
        ("kernel_n", (64, 16), "must rise"),
        ("language_steps", 0, "language_steps=0"),
    ],
)
def test_a_bad_configuration_is_refused(
    field: str, value: object, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        Config(**{field: value})  # type: ignore[arg-type]
