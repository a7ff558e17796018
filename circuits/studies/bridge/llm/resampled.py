"""Conditions on means over bridges, by the bootstrap: a bridge is the replicate."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from circuits.conditions import Mean, State, placed


class Stratum(float):
    """A bridge's value in one of several groups that are resampled apart.

    The mean over all values is the sum of the groups' means, each times its weight.
    """

    group: str

    @classmethod
    def of(cls, group: str, value: float) -> "Stratum":
        """A value that belongs to a group."""
        found = cls(value)
        found.group = group
        return found


def strata(groups: Sequence[tuple[str, float, Sequence[float]]]) -> list[Stratum]:
    """(name, weight, values) of every group -> values whose mean is the weighted sum.

    >>> sum(strata([("a", 1, [3.0]), ("b", -0.5, [2.0, 4.0])])) / 3
    1.5
    """
    total = sum(len(values) for _, _, values in groups)
    return [
        Stratum.of(name, weight * value * total / len(values))
        for name, weight, values in groups
        for value in values
    ]


@dataclass(frozen=True)
class Bootstrap(Mean):
    """The mean over bridges, by its percentile bootstrap interval (Efron 1979)."""

    resamples: int = 2000

    def _number(self, value: float) -> float:
        return value

    def interval(self, values: Sequence[float]) -> tuple[float, float]:
        """The 95 % interval of the mean; groups are resampled apart."""
        import torch

        source = torch.Generator().manual_seed(0)
        drawn = torch.zeros(self.resamples, dtype=torch.float64)
        for _, members in groupby(values, lambda value: getattr(value, "group", "")):
            own = torch.tensor([float(v) for v in members], dtype=torch.float64)
            shape = (self.resamples, len(own))
            index = torch.randint(len(own), shape, generator=source)
            drawn += own[index].sum(1) / len(values)
        low, high = torch.quantile(drawn, torch.tensor([0.025, 0.975]).double())
        return float(low), float(high)


@dataclass(frozen=True)
class Unchanged(Bootstrap):
    """No significant effect: the interval holds 0 and is narrow.

    It fails where the interval excludes 0; where it is wider than what is expected,
    there are too few rows to tell.
    """

    def state(self, values: Sequence[float]) -> State:
        """Narrow around 0, away from 0, or too wide."""
        low, high = self.interval(values)
        if low > 0 or high < 0:
            return "fails"
        return "holds" if placed(low, high, self.expected) == "holds" else "open"

    def would_decide(self, values: Sequence[float]) -> str:
        """More rows."""
        return f"too few rows: {len(values)} bridges"
