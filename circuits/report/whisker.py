"""Where a quantity lies: its interval against what was expected and against its nulls.

Geometry only; the template `whisker.svg` draws it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from circuits.conditions import bounds

from .verdicts import PASSES, Reading

WIDTH = 260.0
MARGIN = 9.0
ORDERS = 300.0
"""Positive numbers whose ratio is beyond this are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Mark:
    """A place on the axis and what is there."""

    x: float
    text: str
    passes: bool = False


@dataclass(frozen=True)
class Whisker:
    """What `whisker.svg` draws, in its units."""

    region: tuple[float, float]
    """The start and the width of what was expected."""
    interval: tuple[float, float] | None
    mean: Mark | None
    replicates: tuple[float, ...]
    nulls: tuple[Mark, ...]
    paper: Mark | None
    ends: tuple[str, str]
    logarithmic: bool
    text: str
    """All of it in words."""


@dataclass(frozen=True)
class _Axis:
    """Numbers to places, linear or logarithmic."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def around(cls, numbers: Sequence[float]) -> "_Axis":
        low, high = min(numbers), max(numbers)
        logarithmic = low > 0 and high / low > ORDERS
        if not logarithmic:
            # A single number stands in the middle of its axis.
            room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
            return cls(low - room, high + room, logarithmic=False)
        return cls(low / 2, high * 2, logarithmic=True)

    def place(self, number: float) -> float:
        share = (self._scaled(number) - self._scaled(self.low)) / (
            self._scaled(self.high) - self._scaled(self.low)
        )
        return round(MARGIN + min(max(share, 0.0), 1.0) * (WIDTH - 2 * MARGIN), 1)

    def _scaled(self, number: float) -> float:
        return math.log(max(number, self.low)) if self.logarithmic else number


def whisker(
    reading: Reading, nulls: Sequence[Reading] = (), paper: float | None = None
) -> Whisker | None:
    """The picture of a quantity; None where nothing was measured."""
    measured = [n for n in nulls if n.mean is not None]
    if not reading.known:
        return None
    seen = [*reading.known, *bounds(reading.expected)]
    seen += [n.mean for n in measured if n.mean is not None]
    ends = [v for v in (reading.low, reading.high, paper) if v is not None]
    axis = _Axis.around([*seen, *ends])
    interval = None
    if reading.low is not None and reading.high is not None:
        interval = axis.place(reading.low), axis.place(reading.high)
    mean = reading.mean
    return Whisker(
        region=_region(reading.expected, axis),
        interval=interval,
        mean=None if mean is None else Mark(axis.place(mean), number(mean)),
        replicates=tuple(sorted({axis.place(v) for v in reading.known})),
        nulls=tuple(_null(null, axis) for null in measured),
        paper=None if paper is None else Mark(axis.place(paper), number(paper)),
        ends=(number(axis.low, 2), number(axis.high, 2)),
        logarithmic=axis.logarithmic,
        text=describe(reading, nulls, paper),
    )


def _null(null: Reading, axis: _Axis) -> Mark:
    assert null.mean is not None
    text = f"null {null.name}: {number(null.mean)}"
    return Mark(axis.place(null.mean), text, passes=null.state == PASSES)


def _region(expected: str, axis: _Axis) -> tuple[float, float]:
    limits = bounds(expected)
    if len(limits) == 2:
        start, end = (axis.place(limit) for limit in limits)
    elif expected.startswith(">"):
        start, end = axis.place(limits[0]), WIDTH
    else:
        start, end = 0.0, axis.place(limits[0])
    # An expectation that is one number can still be seen.
    return start, round(max(end - start, 1.5), 1)


def describe(
    reading: Reading, nulls: Sequence[Reading] = (), paper: float | None = None
) -> str:
    """What the picture shows, for those who do not see it."""
    parts = [f"{reading.name}: {measured(reading)}", f"expected {reading.expected}"]
    parts += [f"null {n.name} {number(n.mean)}" for n in nulls if n.mean is not None]
    if paper is not None:
        parts.append(f"paper {number(paper)}")
    return "; ".join(parts)


def measured(reading: Reading) -> str:
    """The mean with its interval, or the range of what each replicate gave."""
    if not reading.values:
        return "not measured"
    low, high = number(reading.low), number(reading.high)
    shown = number(reading.mean)
    return shown if low == high else f"{shown} [{low}, {high}]"


def number(value: float | None, digits: int = 4) -> str:
    """A number in few digits; undefined ones are said to be so."""
    if value is None:
        return "undefined"
    return f"{value:.{digits}g}".replace("-", "−")
