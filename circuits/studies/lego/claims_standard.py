"""The paper's own recipe on an ordinary transformer; reported, not gated.

The paper states neither the width nor the number of sentences, and from scratch the
symmetric group may not be learned at all in this many steps.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.lego.action import action
from trained.lego.config import Config

UNTRAINED = "untrained"


def standard(config: Config) -> Iterator[Claim]:
    """Claims about ordinary transformers."""
    for group in config.groups:
        for variant in config.standard:
            yield from _one(config, group, variant)


def _one(config: Config, group: str, variant: str) -> Iterator[Claim]:
    name = f"{action(group).slug.lower()}.{variant}"
    what = f"{action(group).slug}, ordinary transformer ({variant})"
    yield Claim(
        f"lego.standard.learned.{name}",
        f"{what}: the training length is learned (all); no other claim about it counts"
        " where this fails.",
        "Section 6",
        "behaviour",
        ">= 0.99",
        Control(UNTRAINED, "<= 0.1"),
        gated=False,
    )
    yield Claim(
        f"lego.standard.diagonals.{name}",
        f"{what}: attention on the two targets at length {config.train_length}.",
        "Figure 2",
        "signal",
        ">= 0.95",
        Control(UNTRAINED, "<= 0.5"),
        gated=False,
    )
    if variant != "positions":
        simple = group == config.simple
        far = min(16 * config.train_length, config.lengths[-1])
        yield Claim(
            f"lego.standard.length.{name}",
            f"{what}: L*, the largest tested length with all >= 0.9.",
            "Figure 1a",
            "behaviour",
            f">= {far if simple else 2 * config.train_length}",
            Control(UNTRAINED, f"< {config.train_length}"),
            gated=False,
        )
