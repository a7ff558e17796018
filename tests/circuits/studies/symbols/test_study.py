"""A tiny run of the whole study: claims, observations and figures fit together."""

from dataclasses import replace

import pytest
import torch

from circuits.claims import judge
from circuits.studies.symbols.claims import claims
from circuits.studies.symbols.context import Context
from circuits.studies.symbols.evidence import observe
from circuits.studies.symbols.figures import FIGURES
from probes.figures import save
from trained.config import as_dict
from trained.store import Run
from trained.symbols.arms import arm_name, arms
from trained.symbols.config import PAPER, QUICK, Config
from trained.symbols.setting import relation
from trained.trainer import Engine
from trained.training import train

TINY = Config(
    n=(8, 16),
    other_tasks=("aba_abb",),
    d_model=8,
    n_heads=2,
    d_head=4,
    lrs=(1e-3, 1e-2),
    max_steps=12,
    n_test=20,
    held_out_symbols=20,
    copy_d=(4, 16),
    copy_n=(4, 8, 12),
    copy_steps=3,
    recall_n=(8,),
    recall_steps=2,
    variants=("controls", "both", "mimetic", "recurrent", "last_layer"),
    kernel_tasks=("same_different",),
    kernel_n=(8, 16),
    theory_d=(16, 256),
    language="none",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    manifest = {
        "study": "symbols",
        "preset": "quick",
        "config": as_dict(TINY),
        "seeds": [0, 1],
        "device": "cpu",
        "environment": {},
    }
    made = Run.create(tmp_path_factory.mktemp("symbols") / "run", manifest)
    train(made, arms(TINY), engine=Engine())
    return made


def test_every_claim_is_observed(run):
    verdicts = judge(claims(TINY), observe(run))
    assert all(len(verdict.observed.values) >= 1 for verdict in verdicts)


@pytest.mark.parametrize("kind", sorted(FIGURES))
def test_every_figure_is_drawn(run, kind, tmp_path):
    assert save(FIGURES[kind](run), tmp_path / f"{kind}.png").stat().st_size > 5000


def test_the_rate_is_chosen_on_validation_and_scores_at_its_best_step(run):
    context, setting = Context(run), relation(TINY, 16, "a")
    by_rate = {lr: run.metrics(arm_name(setting, lr))["validation"] for lr in TINY.lrs}
    best = min(by_rate, key=lambda lr: float(by_rate[lr].min(1).values.mean()))
    assert context.rate(setting) == best
    metrics = run.metrics(arm_name(setting, best))
    steps = metrics["validation"].argmin(1)
    expected = [float(metrics["test"][seed, step]) for seed, step in enumerate(steps)]
    assert context.scores(setting) == expected
    last = torch.tensor(context.last_scores(setting))
    torch.testing.assert_close(last, metrics["test"][:, -1])


def test_claims_have_names_of_their_own_and_say_which_are_judged():
    for config in (QUICK, PAPER, TINY):
        ids = [claim.id for claim in claims(config)]
        assert len(set(ids)) == len(ids)
    quick = {claim.id for claim in claims(QUICK)}
    paper = {claim.id for claim in claims(PAPER)}
    assert "symbols.vanilla.n1024" in quick
    assert "symbols.vanilla.n4096" in paper - quick
    assert "symbols.recall.n4096.binding" in paper - quick


def test_claims_follow_the_configuration():
    def ids(**changes):
        return {claim.id for claim in claims(replace(QUICK, **changes))}

    # Regular tokens let an MLP tell templates apart: no claim that it cannot.
    assert not any("mlp" in name for name in ids(task="figure1"))
    assert "symbols.identity.depth1" not in ids(depth=1)
    assert "symbols.cause.pattern" not in ids(depth=1)
    assert "symbols.match" not in ids(task="aba_abb")
    assert "symbols.identity" in ids(task="majority-4", multiplier=1.0, d_model=32)
