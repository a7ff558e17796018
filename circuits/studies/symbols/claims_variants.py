"""Recall of a value by its name, and variants; expectations fixed beforehand."""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.symbols.config import Config

RECALL_LEAST = 4096
"""Fewer strings do not suffice for +aI +bI (Figure 2c)."""


def recalls(config: Config) -> Iterator[Claim]:
    """The double dissociation, where n is large enough."""
    for n in config.recall_n:
        if n >= RECALL_LEAST:
            yield from _recall(n)


def _recall(n: int) -> Iterator[Claim]:
    yield Claim(
        f"symbols.recall.n{n}",
        f"aI and bI together name the value of a variable: test error, n = {n}.",
        "Figure 2c",
        "behaviour",
        "<= 0.3",
        Control("vanilla", ">= 0.45"),
    )
    yield Claim(
        f"symbols.recall.n{n}.emission",
        "b = 0: no unseen symbol can be named; test error.",
        "ours",
        "causal",
        ">= 0.95",
        Control("not edited", "<= 0.3"),
    )
    yield Claim(
        f"symbols.recall.n{n}.binding",
        "a = 0: one of the two values is named at random; test error.",
        "ours",
        "causal",
        "in [0.4, 0.6]",
        Control("b = 0", ">= 0.95"),
    )
    yield Claim(
        f"symbols.recall.n{n}.values",
        "a = 0: share of answers that are one of the string's values.",
        "ours",
        "causal",
        ">= 0.9",
        Control("b = 0", "<= 0.1"),
    )


def variants(config: Config) -> Iterator[Claim]:
    """What the configuration's variants add."""
    n = config.compared_n
    if "both" in config.variants:
        yield Claim(
            "symbols.identity.both",
            f"Both scalars: test MSE, n = {n}.",
            "Figure 21",
            "behaviour",
            "<= 0.15",
            Control("bI alone", ">= 0.6"),
            gated=False,
        )
    if "mimetic" in config.variants:
        yield Claim(
            "symbols.mimetic",
            f"W_Q W_K^T started near the identity, no scalars: test MSE, n = {n}.",
            "Figure 21",
            "behaviour",
            "<= 0.3",
            Control("vanilla", ">= 0.6"),
            gated=False,
        )
    if "recurrent" in config.variants:
        for cell in ("rnn", "lstm"):
            yield Claim(
                f"symbols.{cell}",
                f"{cell.upper()}: test MSE, n = {n}.",
                "Figure 21",
                "behaviour",
                ">= 0.9",
                Control("+aI", "<= 0.15"),
            )
    if "last_layer" in config.variants:
        yield from _last_layer(config)


def _last_layer(config: Config) -> Iterator[Claim]:
    yield Claim(
        "symbols.last-layer",
        "Training the head only generalises if the frozen weights are large (all"
        " weights of the blocks scaled, our reading): test MSE at x64 minus x8,"
        f" n = {config.n[-1]}.",
        "Appendix B",
        "behaviour",
        "< 0",
        Control("x8 minus x1", "< 0"),
        gated=False,
    )
