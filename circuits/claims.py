"""Claims and verdicts: what a paper says, and what was measured.

A claim is data and is written before the run; a verdict is computed from it and from
what was observed. Nothing sets `passed`.
"""

import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from trained.errors import BadInput

_COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_ONE_SIDED = re.compile(rf"(>=|<=|>|<) ({_NUMBER})")
_INTERVAL = re.compile(rf"in \[({_NUMBER}), ({_NUMBER})\]")


def meets(value: float, expected: str) -> bool:
    """Whether a value meets an expectation such as ">= 0.95" or "in [0.1, 0.2]".

    A value that is not a finite number meets none.

    >>> meets(0.97, ">= 0.95"), meets(0.3, "in [0.1, 0.2]")
    (True, False)
    """
    if match := _ONE_SIDED.fullmatch(expected):
        compare = _COMPARISONS[match[1]]
        return math.isfinite(value) and bool(compare(value, float(match[2])))
    if match := _INTERVAL.fullmatch(expected):
        return float(match[1]) <= value <= float(match[2])
    raise ValueError(f"'{expected}' is neither '>= x' (<=, >, <) nor 'in [a, b]'")


def near(target: float, tolerance: float) -> str:
    """The expectation of a value within a tolerance of a target."""
    return f"in [{target - tolerance:.9g}, {target + tolerance:.9g}]"


@dataclass(frozen=True)
class Control:
    """The same quantity where the mechanism is absent, and what it should be there."""

    name: str
    expected: str


@dataclass(frozen=True)
class Claim:
    """One statement of a paper with the expectation that was fixed in advance."""

    id: str
    statement: str
    source: str
    kind: Literal["behaviour", "signal", "causal", "theory"]
    expected: str
    control: Control
    paper: float | None = None
    """The paper's own number, where it gives one."""
    gated: bool = True
    """Whether the exit code depends on it; an exploratory claim is only reported."""
    every_seed: bool = False
    """Whether each seed must meet the expectation, not only the mean."""

    def __post_init__(self) -> None:
        meets(0.0, self.expected)
        meets(0.0, self.control.expected)


@dataclass(frozen=True)
class Observed:
    """What was measured for a claim: one value per seed, and the control's."""

    values: tuple[float, ...]
    control: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float], control: Sequence[float]) -> "Observed":
        """From any sequences of numbers."""
        return cls(tuple(map(float, values)), tuple(map(float, control)))


@dataclass(frozen=True)
class Verdict:
    """A claim beside what was observed; everything else is computed."""

    claim: Claim
    observed: Observed

    @property
    def mean(self) -> float:
        """The mean over seeds, which the expectation is judged on."""
        return fmean(self.observed.values)

    @property
    def ci95(self) -> tuple[float, float]:
        """The bootstrap 95 % interval of the mean; a point if there is one value."""
        import torch

        from probes.statistics import bootstrap_interval

        values = torch.tensor(self.observed.values, dtype=torch.float64)
        low, high = bootstrap_interval(values)
        return float(low), float(high)

    @property
    def value_passed(self) -> bool:
        """Whether the value meets its expectation."""
        expected = self.claim.expected
        if self.claim.every_seed and not all(
            meets(value, expected) for value in self.observed.values
        ):
            return False
        return meets(self.mean, expected)

    @property
    def control_passed(self) -> bool:
        """Whether the control meets its own expectation."""
        return meets(fmean(self.observed.control), self.claim.control.expected)

    @property
    def passed(self) -> bool:
        """Whether both the value and the control are as expected."""
        return self.value_passed and self.control_passed

    def as_dict(self) -> dict[str, Any]:
        """The verdict as the JSON object that others parse."""
        claim = self.claim
        return {
            "claim": claim.id,
            "statement": claim.statement,
            "source": claim.source,
            "kind": claim.kind,
            "paper": claim.paper,
            "expected": claim.expected,
            "values": [_finite(v) for v in self.observed.values],
            "mean": _finite(self.mean),
            "ci95": [_finite(v) for v in self.ci95],
            "control": {
                "name": claim.control.name,
                "expected": claim.control.expected,
                "values": [_finite(v) for v in self.observed.control],
            },
            "gated": claim.gated,
            "passed": self.passed,
        }


def judge(
    claims: Sequence[Claim], observed: Mapping[str, Observed]
) -> tuple[Verdict, ...]:
    """One verdict per claim; an observation that is missing or foreign is a bug."""
    ids = [claim.id for claim in claims]
    if set(ids) != observed.keys() or len(set(ids)) != len(ids):
        odd = sorted(set(ids) ^ observed.keys()) or "a claim id twice"
        raise AssertionError(f"claims and observations differ: {odd}")
    empty = [
        key for key, seen in observed.items() if not seen.values or not seen.control
    ]
    if empty:
        raise BadInput(f"no seed gave a value for {', '.join(empty)}")
    return tuple(Verdict(claim, observed[claim.id]) for claim in claims)


def _finite(value: float) -> float | None:
    """JSON has no NaN; an undefined value is null."""
    return value if math.isfinite(value) else None
