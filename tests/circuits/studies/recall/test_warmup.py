from dataclasses import replace

import pytest
import torch

from circuits.claims import judge
from circuits.studies.recall import warmup
from circuits.studies.recall.claims_theory import optimum, saddle, theorem2
from trained.recall.algorithm import Outcome, Schedule
from trained.recall.optimum import optimal_attention

T = 0.05
NOT_PAIRWISE = torch.tensor([[0.187, 0.102, 0.351, 0.198, 0.036, 0.126]]).double()


@pytest.fixture(scope="module")
def outcome():
    """A quarter of the schedule: at T = .05 the rest is under .001 by then."""
    whole = Schedule.warmup
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Schedule,
            "warmup",
            lambda t: replace(whole(t), first_steps=5000, second_steps=5000),
        )
        return warmup.solve(T, range(4))


def verdicts(outcomes):
    observed = warmup.observe(outcomes, NOT_PAIRWISE)
    return {
        v.claim.id: v for v in judge((*saddle(), *theorem2(), *optimum()), observed)
    }


def test_all_claims_of_the_warm_up_hold(outcome):
    for key, verdict in verdicts({T: outcome}).items():
        assert verdict.passed, (key, verdict.observed)


def unmoved(outcome) -> Outcome:
    """What was found if the perturbation had not moved anything."""
    held = outcome.theta[-1:].expand_as(outcome.theta)
    return replace(outcome, theta=held.clone())


def test_without_an_escape_theorem_2_is_refuted(outcome):
    found = verdicts({T: unmoved(outcome)})
    for name in ("light-pair", "loss", "accuracy"):
        assert not found[f"recall.theorem2.{name}"].value_passed, name
    assert not found["recall.saddle.attention"].control_passed
    assert found["recall.saddle.attention"].value_passed


def test_an_escape_in_stage_1_refutes_the_saddle(outcome):
    found = verdicts({T: replace(outcome, theta_first=outcome.theta.clone())})
    for name in ("attention", "loss", "accuracy"):
        assert not found[f"recall.saddle.{name}"].value_passed, name


def test_a_dropped_pair_is_not_taken_for_the_optimum(outcome):
    """(0, 0, 1/2, 1/2, 0, 0) has the saddle's loss of log 2: the weights tell."""
    dropped = torch.tensor([-60.0, -60, 0, 0, -60, -60]).double()
    theta = outcome.theta.clone()
    theta[:-1] = dropped
    found = verdicts({T: replace(outcome, theta=theta)})
    for name in ("light-pair", "loss", "accuracy"):
        assert not found[f"recall.theorem2.{name}"].value_passed, name


def test_the_limit_was_searched_for_and_not_just_started_from():
    """BFGS starts near 0.16653; a scan of the exact loss has its minimum at 0.16632."""
    found = warmup._optimum(warmup.LIMIT_TEMPERATURE)
    assert float(found[0]) == pytest.approx(0.16632, abs=5e-5)
    assert float(found[:4].sum()) == pytest.approx(1, abs=1e-3)


def test_above_the_threshold_one_pair_is_dropped():
    assert float(warmup._optimum(warmup.ABOVE_THRESHOLD)[0]) < 1e-3


def test_the_curvature_rises_across_and_falls_along():
    seen = warmup._curvature([T])
    (along,), (across,) = (
        seen["recall.saddle.descent"].values,
        seen["recall.saddle.descent"].control,
    )
    assert along == pytest.approx(-2.0593, abs=1e-4)
    assert across == pytest.approx(2.94, abs=0.01)


def test_lemma_8_has_points_on_both_sides():
    rises, condition = warmup._ratio_rises(T)
    assert int(condition.sum()) > 10_000
    assert int((~condition).sum()) > 1000
    assert not bool(rises[condition].any())
    assert bool(rises[~condition].any())


def test_the_counts_are_those_of_six_bijections():
    counts = warmup.counts()
    assert counts.sum() == 6
    best = optimal_attention(counts, 2, temperature=T)
    assert torch.allclose(best, warmup._optimum(T))
