"""Are there more hits here than there? Pooled counts of two groups of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from circuits.conditions import Condition, Share, State, pooled


class Contrast(float):
    """The difference of two shares, which remembers them."""

    one: Share
    other: Share

    def __new__(cls, one: Share, other: Share) -> "Contrast":
        """The first share minus the second."""
        found = super().__new__(cls, one.hits / one.of - other.hits / other.of)
        found.one, found.other = one, other
        return found

    def __reduce__(self) -> tuple[type["Contrast"], tuple[Share, Share]]:
        """How it is made anew where it comes from another process."""
        return Contrast, (self.one, self.other)


@dataclass(frozen=True)
class Fisher(Condition):
    """More hits than in the other group, pooled over the replicates.

    Fisher's exact test, one-sided (Fisher 1922): it holds below the level, and fails
    where the pooled share is not even larger.

    Attributes:
        level: of the p-value.
    """

    level: float = 0.05

    rule: ClassVar[str] = "fisher"

    def as_dict(self) -> dict[str, Any]:
        """What is fixed in advance."""
        return {**super().as_dict(), "level": self.level}

    def _number(self, value: Any) -> Any:
        return value

    def interval(self, values: Sequence[Contrast]) -> tuple[float, float]:
        """The range of the differences."""
        return min(values), max(values)

    def p_value(self, values: Sequence[Contrast]) -> float:
        """Of the pooled counts."""
        from scipy.stats import hypergeom

        one, other = pooled([v.one for v in values]), pooled([v.other for v in values])
        hits = one.hits + other.hits
        return float(hypergeom.sf(one.hits - 1, one.of + other.of, hits, one.of))

    def state(self, values: Sequence[Contrast]) -> State:
        """Significant, not even larger, or between."""
        if self.passes(values):
            return "holds"
        one, other = pooled([v.one for v in values]), pooled([v.other for v in values])
        return "open" if one.hits * other.of > other.hits * one.of else "fails"

    def passes(self, values: Sequence[Contrast]) -> bool:
        """Whether the p-value is below the level."""
        return self.p_value(values) < self.level
