"""Where attention goes and what length does to it, as claims.

Figures 2, 5, 6, 7; thresholds are ours, fixed before this code ran.
"""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.lego.action import action
from trained.lego.config import Config

from .claims_length import UNIFORM


def attentions(config: Config) -> Iterator[Claim]:
    """Claims about attention."""
    for group in config.groups:
        name = action(group).slug
        yield from _diagonals(config, name)
        yield _least(name)
        yield _order(name)
        if config.lengths[-1] > config.train_length:
            yield _dilution(config, name)
    if config.simple and config.symmetric:
        yield from _compared(config.simple, config.symmetric)


def uniform_mass(length: int) -> float:
    """The two targets' share of what queries see: the mean of 2 / (L + l + 1)."""
    return sum(2 / (length + step + 1) for step in range(length)) / length


def _diagonals(config: Config, name: str) -> Iterator[Claim]:
    length = config.train_length
    yield Claim(
        f"lego.diagonals.{name.lower()}",
        f"{name}: at length {length} attention is on predicate l + 1 and answer l"
        " (sum of both, every seed).",
        "Figure 2",
        "signal",
        ">= 0.95",
        Control(UNIFORM, f"<= {1.05 * uniform_mass(length):.3g}"),
        every_seed=True,
    )
    yield Claim(
        f"lego.diagonals.elsewhere.{name.lower()}",
        f"{name}: no other clause is attended to: the largest mean weight off the two"
        " diagonals.",
        "Figure 2",
        "signal",
        "< 0.02",
        Control(UNIFORM, f">= {0.95 / (length + 1):.3g}"),
    )
    yield Claim(
        f"lego.lookup.{name.lower()}",
        f"{name}: retrieval is by variable: diagonal minus off-diagonal mean of Q43 and"
        " Q44, the least (every seed).",
        "Theorem 4.1",
        "signal",
        "> 3",
        Control("columns shuffled, absolute", "<= 0.5"),
        every_seed=True,
    )


def _least(name: str) -> Claim:
    return Claim(
        f"lego.lookup.least.{name.lower()}",
        f"{name}: the same for every variable: the least diagonal entry above the"
        " off-diagonal mean.",
        "Theorem 4.1",
        "signal",
        "> 3",
        Control("the largest off-diagonal entry", "<= 3"),
        gated=False,
    )


def _order(name: str) -> Claim:
    return Claim(
        f"lego.order.{name.lower()}",
        f"{name}: permuted predicates are solved as well (exact without positions, so a"
        " check of the code; the control is what this rules out).",
        "Figure 5",
        "behaviour",
        ">= 0.99",
        Control("attention by position", "<= 0.5"),
        gated=False,
    )


def _dilution(config: Config, name: str) -> Claim:
    return Claim(
        f"lego.dilution.{name.lower()}",
        f"{name}: eps = n / (n + K), K fitted at length {config.train_length}, predicts"
        f" eps at length {config.lengths[-1]}: relative error.",
        "ours",
        "signal",
        "< 0.05",
        Control("scores growing with log length", "> 0.05"),
    )


def _compared(simple: str, symmetric: str) -> Iterator[Claim]:
    one, other = action(simple).slug, action(symmetric).slug
    yield Claim(
        "lego.concentration",
        f"{other} is less concentrated at equal training: K({other}) / K({one})"
        " (every seed).",
        "Theorem 5.1",
        "signal",
        "in [0.6, 0.95]",
        Control(f"{one} against its next seed", "in [0.95, 1.05]"),
        every_seed=True,
    )
    for what, source in (("predicate", "Figure 6"), ("answer", "Figure 7")):
        decays, flat = (other, one) if what == "predicate" else (one, other)
        yield Claim(
            f"lego.position.{what}",
            f"Attention to the target {what} falls with position in {decays}, hardly"
            f" in {flat}: share lost in {other} from first to last step.",
            source,
            "signal",
            ">= 0.2" if what == "predicate" else "<= 0.05",
            Control(one, "<= 0.05" if what == "predicate" else ">= 0.2"),
            gated=False,
        )
