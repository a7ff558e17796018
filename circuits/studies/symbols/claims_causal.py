"""What should happen when relation models are edited; fixed before this code ran.

The paper makes no edits; the thresholds are ours.
"""

from collections.abc import Iterator
from dataclasses import replace

from circuits.claims import Claim, Control
from trained.symbols.config import Config

INTACT = Control("not edited", "<= 0.05")


def causes(config: Config) -> Iterator[Claim]:
    """The causal claims on real-label tasks; they need a layer after the first."""
    if config.depth >= 2:
        yield from _knockouts(config)
        yield from _patterns(config)
    yield from _symbols(config)
    yield from _weights(config)


def _knockouts(config: Config) -> Iterator[Claim]:
    zero = Claim(
        "symbols.cause.knockout",
        "The first layer's a carries the comparison: sign error of +aI with it at 0,"
        f" n = {config.compared_n}.",
        "ours",
        "causal",
        "in [0.38, 0.62]",
        INTACT,
    )
    yield zero
    yield replace(
        zero,
        id="symbols.cause.knockout.mean",
        statement="The same with the term's mean over strings left in place.",
        gated=False,
    )
    yield replace(
        zero,
        id="symbols.cause.knockout.later",
        statement="a = 0 in the later layers only: sign error.",
        expected="<= 0.1",
        control=Control("a = 0 in the first layer", ">= 0.38"),
        gated=False,
    )
    yield replace(
        zero,
        id="symbols.cause.knockout.queries",
        statement="W_Q = 0 everywhere, a kept: a alone does not suffice.",
        expected="in [0.1, 0.5]",
        gated=False,
    )
    yield Claim(
        "symbols.cause.inserted",
        "a set by hand in the first layer of a trained vanilla model (value chosen on"
        f" validation): change of test MSE, n = {config.compared_n}.",
        "ours",
        "causal",
        ">= -0.1",
        Control("a removed from +aI", ">= 0.5"),
        gated=False,
    )


def _patterns(config: Config) -> Iterator[Claim]:
    within = Control("from a string with the same label", "in [-0.1, 0.1]")
    first = Claim(
        "symbols.cause.pattern",
        "Attention patterns of the first layer taken from a string with the other"
        " label: share of the output gap that moves, +aI.",
        "ours",
        "causal",
        ">= 0.9",
        within,
    )
    yield first
    yield replace(
        first,
        id="symbols.cause.pattern.later",
        statement="The same in the last layer.",
        expected="<= 0.3",
        gated=False,
    )
    yield replace(
        first,
        id="symbols.cause.pattern.vanilla",
        statement="The same in the first layer of vanilla models,"
        f" n = {config.n[-1]}: no layer carries the relation alone.",
        expected="in [0.3, 0.7]",
        control=replace(within, expected="in [-0.2, 0.2]"),
        gated=False,
    )
    if config.task == "same_different":
        yield Claim(
            "symbols.match",
            "A head of +aI compares the two symbols: largest difference over heads of"
            " attention from the second to the first, same against different.",
            "Section 4",
            "signal",
            ">= 0.5",
            Control("vanilla", "<= 0.2"),
        )


def _symbols(config: Config) -> Iterator[Claim]:
    broken = Control("a fresh vector for every occurrence", ">= 0.5")
    n = config.compared_n
    fresh = Claim(
        "symbols.check.fresh",
        "Symbols are arbitrary: change of test MSE of +aI, in size, when test symbols"
        f" get fresh random embeddings, n = {n}.",
        "ours",
        "causal",
        "<= 0.1",
        broken,
        # Test embeddings are never trained, so no model could tell the difference.
        gated=False,
    )
    yield fresh
    yield replace(
        fresh,
        id="symbols.check.permuted",
        statement="The same when test symbols are permuted among themselves.",
    )
    yield Claim(
        "symbols.cause.seen-fresh",
        "Training strings with a fresh random vector for each seen symbol: MSE of +aI;"
        " a model that memorised its symbols breaks.",
        "ours",
        "causal",
        "<= 0.15",
        Control("vanilla", ">= 0.6"),
        # In effect another test on unseen symbols.
        gated=False,
    )


def _weights(config: Config) -> Iterator[Claim]:
    yield Claim(
        "symbols.diagonal.qk",
        "Diagonal of vanilla W_Q W_K^T, gains folded in: largest |z| over heads,"
        f" n = {config.n[-1]}.",
        "Figure 7",
        "signal",
        ">= 4",
        Control("before training", "<= 4"),
        gated=False,
    )
