import pytest
import torch

from circuits.claims import Observed, judge
from circuits.studies.recall import patterns
from circuits.studies.recall.claims_figures import pairwise
from circuits.studies.recall.context import Context
from trained.recall import setting
from trained.recall.config import Config
from trained.recall.optimum import optimal_attention
from trained.recall.patterns import pattern_counts
from trained.recall.scores import install

from .test_causal import absent, known, planted

T = 0.05
CONFIG = Config(n_test=400)


def prompts_of(kind, k=2, seed=0):
    table = setting.table_of(CONFIG, kind, seed)
    return setting.unseen_prompts(table, k, 400, seed)


def with_attention(prompts, attention):
    k = prompts.n_examples
    omega = torch.zeros(2 * k + 3)
    omega[2 * k] = 3
    model = setting.constructed_model(prompts.table, k, 0)
    return install(model, attention.clamp_min(1e-26).log(), omega)


def verdicts(rows, k=2):
    claims = tuple(pairwise("x", "by hand", "ours", n_examples=k, wide=False))
    observed = {
        f"x.{name}": Observed.of([r[name][0] for r in rows], [r[name][1] for r in rows])
        for name in rows[0]
    }
    return {v.claim.id: v for v in judge(claims, observed)}


@pytest.mark.parametrize("kind", ["affine", "random"])
def test_the_optimum_passes_as_figure_2(kind):
    prompts = prompts_of(kind)
    best = optimal_attention(pattern_counts(prompts), 2, temperature=T)
    trained = with_attention(prompts, best)
    untrained = setting.constructed_model(prompts.table, 2, 0)
    for key, verdict in verdicts(
        [patterns._compare(trained, untrained, prompts, T)]
    ).items():
        assert verdict.passed, (key, verdict.observed)


def test_the_optimum_passes_as_figure_2b():
    table = setting.triple_table(CONFIG, 0)
    prompts = setting.unseen_prompts(table, 3, 100, 0)
    best = optimal_attention(pattern_counts(prompts), 3, temperature=0.01)
    # Any order of the pairs is the same pattern.
    best = best[[2, 3, 4, 5, 0, 1, 6, 7]]
    trained = with_attention(prompts, best)
    untrained = setting.constructed_model(table, 3, 0)
    row = patterns._compare(trained, untrained, prompts, 0.01)
    for key, verdict in verdicts([row], k=3).items():
        assert verdict.passed, (key, verdict.observed)


@pytest.mark.parametrize(
    ("attention", "failing"),
    [
        ((0.25, 0.25, 0.25, 0.25, 0, 0), {"gap", "optimum", "accuracy"}),
        ((0.32, 0.18, 0.18, 0.32, 0, 0), {"within-pair", "accuracy"}),
        ((0.0, 0.0, 0.5, 0.5, 0, 0), {"optimum", "accuracy"}),
        ((1 / 6,) * 6, {"gap", "rest", "optimum", "accuracy"}),
    ],
)
def test_other_patterns_do_not_pass(attention, failing):
    prompts = prompts_of("affine")
    trained = with_attention(prompts, torch.tensor(attention))
    untrained = setting.constructed_model(prompts.table, 2, 0)
    found = verdicts([patterns._compare(trained, untrained, prompts, T)])
    for name in failing:
        assert not found[f"x.{name}"].value_passed, name


def test_distance_ignores_which_pair_is_heavy():
    optimum = torch.tensor([0.18, 0.18, 0.32, 0.32, 0, 0])
    mirrored = optimum[[2, 3, 0, 1, 4, 5]]
    assert patterns._distance(mirrored, optimum) == 0
    off = torch.tensor([0.32, 0.30, 0.18, 0.18, 0.0, 0.02])
    assert patterns._distance(off, optimum) == pytest.approx(0.02)


def test_attention_is_averaged_over_prompts_of_one_model():
    prompts = prompts_of("affine")
    mean = patterns.mean_attention(known(prompts.table), prompts)
    assert mean.tolist() == pytest.approx([0.18, 0.18, 0.32, 0.32, 0, 0], abs=1e-6)
    second = patterns.mean_attention(known(prompts.table), prompts, step="answer")
    assert second.shape == (7,)
    assert int(second.argmax()) == 4


def test_the_answer_follows_the_relation_that_is_written():
    prompts = prompts_of("affine")
    right, wrong = patterns._answer_accuracy(known(prompts.table), prompts)
    assert right == 1
    assert wrong < 0.3
    lost, _ = patterns._answer_accuracy(absent(prompts.table), prompts)
    assert lost < 0.5


@pytest.mark.parametrize("kind", ["affine", "random"])
def test_the_constructed_memory_knows_every_fact(kind):
    prompts = prompts_of(kind)
    model = setting.constructed_model(prompts.table, 2, 0)
    model.W_KQ.data.zero_()
    assert patterns._facts(model, prompts, 0) == 1
    assert patterns._facts(absent(prompts.table), prompts, 0) < 0.2


def test_a_relation_that_does_not_fit_is_no_fact():
    prompts = prompts_of("affine")
    model = setting.constructed_model(prompts.table, 2, 0)
    model.W_KQ.data.zero_()
    relations = model.memory.W_out.data.reshape(3, 64, -1)
    relations[1] = relations[1].roll(1, 0)
    # A third of the questions asks for the relation; those are now all wrong.
    assert patterns._facts(model, prompts, 0) < 2 / 3 + 0.05


def test_the_lighter_pair():
    weights = torch.tensor([0.3, 0.32, 0.1, 0.14, 0.0, 0.14])
    assert patterns._lighter(weights) == pytest.approx(0.12)


def test_figure_2_of_a_planted_run(tmp_path):
    run = planted(tmp_path / "run", CONFIG, known, (0, 1))
    observed = patterns._figure2(Context(run), "full", "affine")
    assert set(observed) == {
        f"recall.fig2.full-affine.{name}"
        for name in ("within-pair", "gap", "rest", "optimum", "accuracy", "answer")
    }
    gap = observed["recall.fig2.full-affine.gap"]
    assert gap.values == pytest.approx([0.14, 0.14], abs=1e-5)
    assert max(gap.control) < 0.02
    assert observed["recall.fig2.full-affine.accuracy"].values == (0, 0)
