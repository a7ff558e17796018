"""When does a measured quantity meet what was expected? Rules, each fixed in advance.

`Mean` and `Median`: the 95 % interval over replicates lies inside the expectation
(holds), outside (fails), or across (open). `Each` and `Count`: decided over the
replicates as stated. `Proportion`: the Clopper-Pearson interval of the pooled examples.
`Chance`: the pooled hits are no more than guessing gives. Skewed quantities: a
`Median`, a `Mean` of logarithms, or `Each`.
"""

import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, ClassVar, Literal, NamedTuple

Measure = Callable[[Any], Sequence[Any]]
"""lab -> one value per replicate (of a `Proportion`: one `Share`)."""

State = Literal["holds", "fails", "open"]

MOST_REPLICATES = 10_000
"""Beyond this many, replicates are not said to decide."""

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


def bounds(expected: str) -> tuple[float, ...]:
    """The numbers in an expectation."""
    meets(0.0, expected)
    numbers = expected.removeprefix("in").strip(" ><=[]").split(",")
    return tuple(float(number) for number in numbers)


def placed(low: float, high: float, expected: str) -> State:
    """Whether an interval lies inside an expectation, outside, or across."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "open"
    ends = meets(low, expected), meets(high, expected)
    if all(ends):
        return "holds"
    if any(ends):
        return "open"
    # Both ends outside: on one side of it, or around it.
    around = any(low <= bound <= high for bound in bounds(expected))
    return "open" if around and len(bounds(expected)) > 1 else "fails"


class Share(NamedTuple):
    """Hits among examples."""

    hits: int
    of: int


@dataclass(frozen=True)
class Condition(ABC):
    """A quantity, what it is expected to be, and how it is measured."""

    name: str
    expected: str
    measure: Measure

    rule: ClassVar[str] = ""

    def __post_init__(self) -> None:
        meets(0.0, self.expected)

    def measured(self, lab: Any) -> "Outcome":
        """The condition beside what a lab gives."""
        values = tuple(self._number(value) for value in self.measure(lab))
        if not values:
            raise ValueError(f"{self.name}: the lab gave no value")
        return Outcome(self, values)

    def as_dict(self) -> dict[str, Any]:
        """What is fixed in advance."""
        return {"name": self.name, "rule": self.rule, "expected": self.expected}

    def _number(self, value: Any) -> Any:
        return float(value)

    @abstractmethod
    def interval(self, values: Sequence[Any]) -> tuple[float, float]:
        """The 95 % interval of what is judged, or the range of the replicates."""

    @abstractmethod
    def state(self, values: Sequence[Any]) -> State:
        """Whether the values meet the expectation."""

    @abstractmethod
    def passes(self, values: Sequence[Any]) -> bool:
        """Whether the values meet it by their mean or count, as a null is judged."""

    def p_value(self, values: Sequence[Any]) -> float | None:
        """How likely such values are if the truth lies outside; None: no such test."""
        del values
        return None

    def would_decide(self, values: Sequence[Any]) -> str:
        """How many replicates would decide, in words."""
        del values
        return "more replicates of the same kind would not decide"


@dataclass(frozen=True)
class Mean(Condition):
    """The mean over replicates, by its Student t interval."""

    rule: ClassVar[str] = "mean"

    def interval(self, values: Sequence[float]) -> tuple[float, float]:
        """The 95 % interval of the mean; undefined for one replicate."""
        from probes.statistics import student_interval

        return student_interval(values)

    def state(self, values: Sequence[float]) -> State:
        """Inside, outside or across."""
        return placed(*self.interval(values), self.expected)

    def passes(self, values: Sequence[float]) -> bool:
        """By the mean."""
        return meets(fmean(values), self.expected)

    def p_value(self, values: Sequence[float]) -> float | None:
        """Of the t tests against each bound, the largest."""
        from probes.statistics import student_p_value

        sides = {
            bound: self.expected.startswith(">") for bound in bounds(self.expected)
        }
        if len(sides) == 2:
            sides = dict(zip(sorted(sides), (True, False), strict=True))
        return max(student_p_value(values, b, above=up) for b, up in sides.items())

    def would_decide(self, values: Sequence[float]) -> str:
        """The least number whose interval would not cross a bound."""
        from probes.statistics import student_half_width

        if not all(math.isfinite(v) for v in values):
            return "a value is undefined"
        if len(values) < 2:
            return "one replicate decides nothing; 3 or more may"
        mean = fmean(values)
        gap = min(abs(mean - bound) for bound in bounds(self.expected))
        n = len(values)
        while n <= MOST_REPLICATES and student_half_width(values, n) >= gap:
            n = max(n + 1, round(n * 1.1))
        if n > MOST_REPLICATES:
            return "too close to the bound to be decided by replicates"
        return f"about {n} replicates would decide"


@dataclass(frozen=True)
class Median(Condition):
    """The median over replicates, for skewed quantities, by its exact interval."""

    rule: ClassVar[str] = "median"

    def interval(self, values: Sequence[float]) -> tuple[float, float]:
        """Order statistics that hold the median with 95 %; six replicates at least."""
        from probes.statistics import median_interval

        return median_interval(values)

    def state(self, values: Sequence[float]) -> State:
        """Inside, outside or across."""
        return placed(*self.interval(values), self.expected)

    def passes(self, values: Sequence[float]) -> bool:
        """By the median."""
        return meets(median(values), self.expected)

    def would_decide(self, values: Sequence[float]) -> str:
        """At least six."""
        return f"6 replicates or more may decide, {len(values)} were measured"


@dataclass(frozen=True)
class Each(Condition):
    """Every replicate on its own.

    Attributes:
        universal: whether the paper says "all", so that one exception refutes it.
    """

    universal: bool = False

    rule: ClassVar[str] = "each"

    def interval(self, values: Sequence[float]) -> tuple[float, float]:
        """The range of the replicates."""
        return min(values), max(values)

    def state(self, values: Sequence[float]) -> State:
        """All hold, none does, or some."""
        held = [meets(value, self.expected) for value in values]
        if all(held):
            return "holds"
        if not all(math.isfinite(value) for value in values):
            return "open"
        return "fails" if self.universal or not any(held) else "open"

    def passes(self, values: Sequence[float]) -> bool:
        """All of them."""
        return all(meets(value, self.expected) for value in values)


@dataclass(frozen=True)
class Count(Condition):
    """At least so many of every so many replicates, as in "9 of 10"."""

    least: int = 1
    of: int = 1

    rule: ClassVar[str] = "count"

    def as_dict(self) -> dict[str, Any]:
        """What is fixed in advance."""
        return {**super().as_dict(), "least": self.least, "of": self.of}

    def interval(self, values: Sequence[float]) -> tuple[float, float]:
        """The range of the replicates."""
        return min(values), max(values)

    def state(self, values: Sequence[float]) -> State:
        """Enough of them, with as many replicates as the statement has; else open."""
        if self.passes(values):
            return "holds" if len(values) >= self.of else "open"
        return "fails"

    def passes(self, values: Sequence[float]) -> bool:
        """Whether the share of replicates is large enough."""
        held = sum(meets(value, self.expected) for value in values)
        return held * self.of >= self.least * len(values)

    def would_decide(self, values: Sequence[float]) -> str:
        """As many as the statement has."""
        return f"{self.of} replicates would decide, {len(values)} were measured"


@dataclass(frozen=True)
class Proportion(Condition):
    """A share of examples, pooled over replicates; measured as `Share`s."""

    rule: ClassVar[str] = "proportion"

    def _number(self, value: Any) -> Share:
        return Share(*value)

    def interval(self, values: Sequence[Share]) -> tuple[float, float]:
        """The Clopper-Pearson 95 % interval of the pooled share."""
        from probes.statistics import clopper_pearson

        return clopper_pearson(*pooled(values))

    def state(self, values: Sequence[Share]) -> State:
        """Inside, outside or across."""
        return placed(*self.interval(values), self.expected)

    def passes(self, values: Sequence[Share]) -> bool:
        """By the pooled share."""
        hits, of = pooled(values)
        return meets(hits / of, self.expected)

    def would_decide(self, values: Sequence[Share]) -> str:
        """How many times as many examples would decide."""
        hits, of = pooled(values)
        for factor in range(2, 101):
            share = Share(hits * factor, of * factor)
            if placed(*self.interval([share]), self.expected) != "open":
                return f"about {factor * of} examples would decide, {of} were measured"
        return "too close to the bound to be decided by examples"


@dataclass(frozen=True)
class Chance(Condition):
    """Hits pooled over the replicates are no more than guessing gives.

    What is judged is the 99.9 % quantile of the binomial distribution, which follows
    from how many replicates there are; `expected` states it for the usual number.

    Attributes:
        among: how many answers there are to guess among.
        examples: prompts of a replicate.
    """

    among: int = 2
    examples: int = 1

    rule: ClassVar[str] = "chance"

    def as_dict(self) -> dict[str, Any]:
        """What is fixed in advance."""
        return {**super().as_dict(), "among": self.among, "examples": self.examples}

    def interval(self, values: Sequence[float]) -> tuple[float, float]:
        """The range of the replicates."""
        return min(values), max(values)

    def state(self, values: Sequence[float]) -> State:
        """Within the bound or beyond it."""
        if not all(math.isfinite(value) for value in values):
            return "open"
        return "holds" if self.passes(values) else "fails"

    def passes(self, values: Sequence[float]) -> bool:
        """Whether the pooled share is within the bound."""
        bound = guesses(len(values) * self.examples, 1 / self.among)
        return meets(sum(values) * self.examples, f"<= {bound + 1e-3}")


def guesses(trials: int, share: float) -> int:
    """The 99.9 % quantile of the hits that guessing gives.

    >>> guesses(300, 1 / 100)
    10
    """
    hits, term = 0, (1 - share) ** trials
    below = term
    while below < 0.999:
        hits += 1
        term *= (trials - hits + 1) / hits * share / (1 - share)
        below += term
    return hits


def chance(among: int, examples: int, replicates: int) -> str:
    """The expectation of a share of hits that guessing may give.

    >>> chance(100, 100, 3)
    '<= 0.0333'
    """
    trials = replicates * examples
    return f"<= {math.floor(guesses(trials, 1 / among) / trials * 1e4) / 1e4:.4g}"


def pooled(shares: Sequence[Share]) -> Share:
    """All examples together."""
    return Share(sum(s.hits for s in shares), sum(s.of for s in shares))


@dataclass(frozen=True)
class Outcome:
    """A condition beside what was measured."""

    condition: Condition
    raw: tuple[Any, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """One number per replicate."""
        return tuple(v.hits / v.of if isinstance(v, Share) else v for v in self.raw)

    @property
    def mean(self) -> float:
        """The mean over replicates."""
        return fmean(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        """What the rule judges."""
        return self.condition.interval(self.raw)

    @property
    def state(self) -> State:
        """Holds, fails or open."""
        return self.condition.state(self.raw)

    @property
    def passes(self) -> bool:
        """Whether a null with these values would pass."""
        return self.condition.passes(self.raw)

    @property
    def p_value(self) -> float | None:
        """How likely such values are if the truth lies outside the expectation."""
        return self.condition.p_value(self.raw)

    def would_decide(self) -> str:
        """How many replicates would decide, in words."""
        return self.condition.would_decide(self.raw)

    def describe(self) -> str:
        """The name, the mean, its interval and what was expected, on one line."""
        low, high = self.interval
        shown = f"{self.mean:.4g}"
        if math.isfinite(low) and f"{low:.4g}" != f"{high:.4g}":
            shown += f" [{low:.4g}, {high:.4g}]"
        return f"{self.condition.name} {shown}, expected {self.condition.expected}"

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **self.condition.as_dict(),
            "values": [v if math.isfinite(v) else None for v in self.values],
            "ci95": [v if math.isfinite(v) else None for v in self.interval],
            "state": self.state,
        }
