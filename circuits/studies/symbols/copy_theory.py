"""Does the loss on an unseen symbol fall when training begins?"""

from collections.abc import Sequence

from circuits.claims import Observed
from trained.seeding import generator
from trained.symbols.copy_theory import CopyModel, CopySizes, Group, transfer_rates

from .context import Context

WIDE, NOT_NARROW = 256, 64
"""From these widths on Theorems 5.1 and 5.2 are expected to hold."""

Rates = dict[int, dict[Group, float]]
"""By width and group of parameters."""


def observe(context: Context) -> dict[str, Observed]:
    """Theorems 5.1 and 5.2, one value per seed."""
    widths = context.config.theory_d
    found = [rates(widths, seed) for seed in context.run.seeds]
    narrow = widths[0]

    def falls(group: Group) -> list[float]:
        return [max(r[d][group] for d in r if d >= WIDE) for r in found]

    def scalar(by_width: Rates) -> float:
        wide = [by_width[d]["b"] for d in by_width if d >= NOT_NARROW]
        return max(wide, key=lambda rate: abs(rate - 1))

    return {
        "symbols.copying.values": Observed.of(
            falls("W_V"), [r[narrow]["W_V"] for r in found]
        ),
        "symbols.copying.outputs": Observed.of(
            falls("W_O"), [r[narrow]["W_O"] for r in found]
        ),
        "symbols.copying.scalar": Observed.of(
            [scalar(by_width) for by_width in found], falls("W_V")
        ),
    }


def rates(widths: Sequence[int], seed: int) -> Rates:
    """Transfer rates of a seed's copy models."""
    return {
        d: transfer_rates(
            CopyModel(
                CopySizes(d), generator=generator(seed, "symbols", "copy theory", d)
            )
        )
        for d in widths
    }
