"""How far chains generalise (Figure 1a), as claims; fixed before this code ran."""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.lego.action import action
from trained.lego.config import Config

UNIFORM = "uniform attention"
FAR = 16
"""L* over the training length that counts as far: 80 from 5."""


def lengths(config: Config) -> Iterator[Claim]:
    """Claims about length and training budget."""
    for group in config.groups:
        yield from _group(config, group)
    if config.simple and config.symmetric:
        yield from _separation(config, config.simple, config.symmetric)
    for group in config.extra_groups:
        yield _extra(config, group)


def _group(config: Config, group: str) -> Iterator[Claim]:
    name, length = action(group).slug, config.train_length
    yield Claim(
        f"lego.learned.{name.lower()}",
        f"{name}: chains of the training length {length} are solved, every answer"
        " right (every seed).",
        "Figure 1a",
        "behaviour",
        ">= 0.99",
        Control(UNIFORM, "<= 0.1"),
        paper=1.0,
        every_seed=True,
    )
    far = min(FAR * length, config.lengths[-1])
    simple = group == config.simple
    expected = f">= {far}" if simple else f">= {2 * length}"
    beyond = "far beyond" if simple else "at least twice"
    yield Claim(
        f"lego.length.{name.lower()}",
        f"{name}: {beyond} the training length {length}: the largest tested length"
        " with all >= 0.9" + (" (every seed)." if simple else "."),
        "Figure 1a",
        "behaviour",
        expected,
        Control(UNIFORM, f"< {length}"),
        gated=config.lengths[-1] >= (far if simple else 2 * length) > length,
        every_seed=simple,
    )


def _separation(config: Config, simple: str, symmetric: str) -> Iterator[Claim]:
    one, other = action(simple).slug, action(symmetric).slug
    same = f"{one} against its next seed, absolute"
    for budget in config.budgets:
        yield Claim(
            f"lego.separation.steps{budget}",
            f"After {budget} steps: log2 of L*({one}) / L*({other}).",
            "Figure 1a",
            "behaviour",
            ">= 1",
            Control(same, "<= 0.5"),
            gated=False,
        )
    if len(config.budgets) > 1:
        yield Claim(
            "lego.separation.budgets",
            f"{other} generalises less than {one}: budgets at which the median ratio"
            " of L* is at least 2 (a window: both reach the cap with more training).",
            "Figure 1a",
            "behaviour",
            ">= 2",
            Control(f"{one} against its next seed", "<= 0"),
        )
        yield Claim(
            "lego.separation.loss-matched",
            "The same at equal loss over its own floor: log2 of the ratio of the"
            " lengths where all falls through 0.9.",
            "ours",
            "behaviour",
            ">= 0.5",
            Control(same, "<= 0.5"),
            gated=False,
        )


def _extra(config: Config, group: str) -> Claim:
    name = action(group).slug
    return Claim(
        f"lego.extra.{name.lower()}",
        f"{name}: per-step accuracy at length {config.lengths[-1]}.",
        "ours",
        "behaviour",
        ">= 0.99",
        Control(UNIFORM, "<= 0.5"),
        gated=False,
    )
