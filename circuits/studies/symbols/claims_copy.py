"""Copying an unseen symbol: what should hold, fixed before this code ran."""

from collections.abc import Iterator
from dataclasses import replace

from circuits.claims import Claim, Control
from trained.symbols.config import Config


def copies(config: Config) -> Iterator[Claim]:
    """Errors by width, the repair by bI, its knock-outs, geometry and diagonals."""
    yield from _errors(config)
    if len(config.copy_d) >= 2:
        yield from _scaling(config)
    yield from _knockouts(config)
    yield from _geometry(config)
    yield from _diagonals(config)


def _vanilla(config: Config) -> str:
    return f"vanilla, d = {config.copy_d[-1]}"


def _errors(config: Config) -> Iterator[Claim]:
    n = config.compared_copy_n
    repaired = Claim(
        "symbols.copy.identity",
        "W_V W_O^T + bI copies unseen symbols at every width: largest test error over"
        f" d, n = {n}, multiplier {config.multiplier:g}.",
        "Theorem 5.2 and Figure 5",
        "behaviour",
        "<= 0.1",
        Control(_vanilla(config), ">= 0.9"),
    )
    yield repaired
    yield replace(
        repaired,
        id="symbols.copy.identity.last",
        statement="The same after the last step instead of the best on validation.",
        gated=False,
    )


def _scaling(config: Config) -> Iterator[Claim]:
    n, narrow, wide = config.compared_copy_n, config.copy_d[0], config.copy_d[-1]
    yield Claim(
        "symbols.copy.inverse",
        "Inverse scaling: vanilla transformers copy unseen symbols worse the wider they"
        f" are; test error at d = {narrow}, n = {n}.",
        "Theorem 5.1 and Figure 5",
        "behaviour",
        "<= 0.25",
        Control(f"d = {wide}", ">= 0.9"),
    )
    yield Claim(
        "symbols.copy.inverse.restricted",
        f"Among test symbols only (trained ones are easy to name): d = {narrow}.",
        "ours",
        "behaviour",
        "<= 0.25",
        Control(f"d = {wide}", ">= 0.5"),
        gated=False,
    )
    if len(config.copy_n) >= 3 and wide >= 4 * narrow:
        yield Claim(
            "symbols.copy.n50",
            "The n at 50 % error grows with the width: factor for each fourfold d"
            " (a lower bound where the widest never gets there).",
            "Figure 5",
            "behaviour",
            ">= 2",
            Control("with bI", "< 2"),
        )


def _knockouts(config: Config) -> Iterator[Claim]:
    intact = Control("not edited: largest error over d", "<= 0.1")
    zero = Claim(
        "symbols.copy.knockout",
        f"b = 0 in +bI models destroys copying: smallest error over d, n ="
        f" {config.compared_copy_n}.",
        "ours",
        "causal",
        ">= 0.8",
        intact,
    )
    yield zero
    yield replace(
        zero,
        id="symbols.copy.knockout.mean",
        statement="The same with the term's mean over strings left in place.",
        gated=False,
    )
    yield Claim(
        "symbols.copy.sufficient",
        f"b alone suffices: error with W_O = 0, d = {config.copy_d[-1]}.",
        "ours",
        "causal",
        "<= 0.1",
        Control("and b = 0", ">= 0.9"),
    )
    yield Claim(
        "symbols.copy.seen-fresh",
        "Training strings with a fresh random vector for each seen symbol: largest"
        " error of +bI over d.",
        "ours",
        "causal",
        "<= 0.1",
        Control(_vanilla(config), ">= 0.9"),
        gated=False,
    )


def _geometry(config: Config) -> Iterator[Claim]:
    wide, few = config.copy_d[-1], config.copy_n[0]
    yield Claim(
        "symbols.copy.geometry",
        "Vanilla heads copy in the span of what they saw: cosine of e W_V W_O with e,"
        f" seen minus unseen symbols, d = {wide}, n = {few}.",
        "Section 5",
        "signal",
        ">= 0.3",
        Control("+bI", "<= 0.15"),
    )
    yield Claim(
        "symbols.copy.geometry.narrow",
        "The gap closes where copying works: the same at"
        f" d = {config.copy_d[0]}, n = {config.copy_n[-1]}.",
        "Section 5",
        "signal",
        "<= 0.15",
        Control(f"d = {wide}, n = {few}", ">= 0.3"),
        gated=False,
    )
    if wide > config.compared_copy_n:
        yield Claim(
            "symbols.copy.span",
            "Unseen embeddings projected on the span of seen ones before the head:"
            f" change of vanilla's error, d = {wide}, n = {config.compared_copy_n}.",
            "ours, after the proof of Theorem 5.1",
            "causal",
            "<= -0.2",
            Control("error with only the rest of the embedding", ">= 0.9"),
            gated=False,
        )


def _diagonals(config: Config) -> Iterator[Claim]:
    if len(config.copy_n) < 2:
        return
    few, many = config.copy_n[0], config.copy_n[-1]
    joint = Claim(
        "symbols.diagonal.ov",
        "More data makes the sum over heads of vanilla W_V W_O more diagonal: z at"
        f" n = {many} minus n = {few}, d = {config.copy_d[-1]}, every seed"
        " (z = sqrt(d) tr M / |M|, about N(0, 1) at random, d for the identity).",
        "Figure 7",
        "signal",
        "> 0",
        Control("before training", "in [-3, 3]"),
        every_seed=True,
    )
    yield joint
    yield replace(
        joint,
        id="symbols.diagonal.ov.heads",
        statement="The same for the mean of z over heads, of which some stay idle.",
        gated=False,
    )
