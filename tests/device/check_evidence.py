"""What is measured on a device that is not the CPU is what is measured on the CPU."""

import math

import pytest

from circuits.claims import Verdict, judge
from circuits.confirm import open_lab
from circuits.lab import Lab
from circuits.study import STUDIES
from tests.device import standin
from tests.device.sample import sampled
from trained.store import shipped

LEFT_OUT = ("analogy.order.block.AS.converges",)
"""A null of it descends for thousands of steps on premises that cannot be told apart,
where the last digit of a sum decides."""


def numbers(verdict: Verdict) -> list[float]:
    """All that was measured for a claim, nulls included."""
    outcomes = (*verdict.preconditions, *verdict.conditions, *verdict.controls)
    found = (*outcomes, *verdict.nulls, *verdict.shown)
    return [value for outcome in found for value in outcome.values]


def alike(
    here: list[float] | str, there: list[float] | str, within: float = 1e-4
) -> bool:
    """Whether two lists of numbers, or two reasons for having none, are the same."""
    if isinstance(here, str) or isinstance(there, str):
        return here == there
    pairs = zip(here, there, strict=False)
    return len(here) == len(there) and all(
        math.isclose(one, other, rel_tol=1e-3, abs_tol=within)
        or (math.isnan(one) and math.isnan(other))
        for one, other in pairs
    )


def measured(study: str) -> dict[str, list[float] | str]:
    """Of claims; those of kind theory have no network to measure."""
    lab = open_lab(shipped(study))
    claims = [c for c in lab.study.claims_at(lab.config) if c.kind != "theory"]
    known = [claim for claim in claims if claim.id not in LEFT_OUT]
    verdicts = [judge(claim, lab) for claim in sampled(known)]
    return {v.claim.id: v.missing or numbers(v) for v in verdicts}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_the_evidence_is_the_same(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = measured(study)
    with standin.device() as device:
        monkeypatch.setattr(Lab, "device", str(device))
        there = measured(study)
        assert standin.COPIES
    assert any(isinstance(found, list) and found for found in here.values())
    for claim, found in here.items():
        assert alike(found, there[claim]), (claim, found, there[claim])


@pytest.mark.parametrize("quantity", ["success", "c_only", "imbalance", "loss"])
def test_seeds_that_may_be_stacked_are_measured_in_one_pass(
    quantity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = "block-joint-k3"
    here = getattr(open_lab(shipped("analogy")), quantity)(arm)
    assert len(here) > 1
    with standin.device() as device:
        monkeypatch.setattr(Lab, "device", str(device))
        lab = open_lab(shipped("analogy"))
        list(lab.models(arm))
        standin.COPIES.clear()
        there = getattr(lab, quantity)(arm)
        assert standin.COPIES.total() == 1
    assert there == pytest.approx(here, abs=1e-5)
