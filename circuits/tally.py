"""Values and controls of claims, gathered seed by seed."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from .claims import Claim, Observed


@dataclass
class Tally:
    """What was measured so far, by claim.

    Attributes:
        prefix: what the ids of the claims begin with.
    """

    prefix: str
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    controls: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def value(self, name: str, value: float) -> None:
        """Note one more value."""
        self.values[self.prefix + name].append(value)

    def control(self, name: str, value: float) -> None:
        """Note one more value of the control."""
        self.controls[self.prefix + name].append(value)

    def both(self, name: str, value: float, control: float) -> None:
        """Note one more value and its control."""
        self.value(name, value)
        self.control(name, control)

    def observed(self) -> dict[str, Observed]:
        """What `judge` takes."""
        return {
            name: Observed.of(values, self.controls[name])
            for name, values in self.values.items()
        }


def undefined(claims: Sequence[Claim]) -> dict[str, Observed]:
    """No value for any claim: none can be confirmed."""
    nan = float("nan")
    return {claim.id: Observed((nan,), (nan,)) for claim in claims}
