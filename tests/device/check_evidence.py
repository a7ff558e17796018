"""What is measured on a device that is not the CPU is what is measured on the CPU."""

import math

import pytest

from circuits.claims import Claim, Verdict, judge
from circuits.confirm import open_lab
from circuits.lab import Lab
from circuits.study import STUDIES
from tests.device import standin
from trained.store import shipped

EVERY = 8
"""Of so many claims one is measured: neighbours in the list are alike."""


def numbers(verdict: Verdict) -> list[float]:
    """All that was measured for a claim, nulls included."""
    values = [value for outcome in verdict.conditions for value in outcome.raw]
    return values + [value for null in verdict.nulls for value in null.values]


def measured(study: str) -> dict[str, list[float]]:
    lab = open_lab(shipped(study))
    claims: list[Claim] = list(lab.study.claims_at(lab.config))[::EVERY]
    return {claim.id: numbers(judge(claim, lab)) for claim in claims}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_the_evidence_is_the_same(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = measured(study)
    with standin.device() as device:
        monkeypatch.setattr(Lab, "device", str(device))
        there = measured(study)
        assert standin.COPIES
    assert any(here.values())
    for claim, values in here.items():
        assert len(values) == len(there[claim]), claim
        for one, other in zip(values, there[claim], strict=True):
            alike = math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-4)
            assert alike or (math.isnan(one) and math.isnan(other)), claim
