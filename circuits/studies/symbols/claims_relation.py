"""Relations between unseen symbols: what should hold, fixed before this code ran."""

from collections.abc import Iterator

from circuits.claims import Claim, Control
from trained.symbols.config import Config
from trained.symbols.tasks import task

VANILLA = "vanilla"
LEVEL = 0.5
"""The MSE at which data needs are compared."""


def relations(config: Config) -> Iterator[Claim]:
    """MLP, vanilla and modified transformers on the real-label tasks."""
    if not task(config.task).regular:
        # Regular tokens tell templates apart without comparing symbols.
        yield from _perceptron(config)
    yield from _vanilla(config)
    yield from _identity(config)
    if "controls" in config.variants:
        yield from _controls(config)
    yield from _others(config)


def _perceptron(config: Config) -> Iterator[Claim]:
    given = "MLP that is given the incidence matrix X X^T"
    for n in config.n:
        if n < 64:
            continue
        yield Claim(
            f"symbols.mlp.n{n}",
            f"An MLP does not generalise to unseen symbols: test MSE, {config.task},"
            f" n = {n}.",
            "Theorem 3.1 and Figure 21",
            "behaviour",
            "in [0.9, 1.15]",
            Control(given, "<= 0.3"),
        )
        yield Claim(
            f"symbols.mlp.n{n}.error",
            f"It answers at chance: test sign error, n = {n}.",
            "Theorem 3.1",
            "behaviour",
            "in [0.38, 0.62]",
            Control(given, "<= 0.02"),
        )
    yield Claim(
        "symbols.mlp.fits",
        "And yet it fits its training strings: largest train MSE over n.",
        "ours",
        "behaviour",
        "<= 0.001",
        Control("before training", ">= 0.5"),
    )


def _vanilla(config: Config) -> Iterator[Claim]:
    for n, least in ((1024, 0.6), (4096, 0.15)):
        if n in config.n and 64 in config.n:
            yield Claim(
                f"symbols.vanilla.n{n}",
                "A vanilla transformer generalises to unseen symbols with enough data:"
                f" test MSE, {config.task}, n = {n}.",
                "Theorem 4.4 and Figure 1c",
                "behaviour",
                f"<= {least}",
                Control("the same at n = 64", ">= 0.85"),
            )
    yield Claim(
        "symbols.fits",
        "Vanilla and +aI transformers fit their training strings: largest train MSE"
        " over n.",
        "ours",
        "behaviour",
        "<= 0.001",
        Control("before training", ">= 0.5"),
    )


def _identity(config: Config) -> Iterator[Claim]:
    n, m = config.compared_n, f"multiplier {config.multiplier:g}"
    yield Claim(
        "symbols.identity",
        f"W_K W_Q^T + aI generalises where vanilla does not: test MSE, {config.task},"
        f" n = {n}, {m}.",
        "Figures 1c and 21",
        "behaviour",
        "<= 0.15",
        Control(VANILLA, ">= 0.6"),
    )
    if 64 in config.identity_n and 1024 in config.n:
        yield Claim(
            "symbols.identity.sixteenfold",
            "+aI with n = 64 beats vanilla with n = 1024: difference of test MSE.",
            "ours, after Figure 1c",
            "behaviour",
            "< 0",
            Control("vanilla with n = 64 minus vanilla with n = 1024", "> 0.25"),
        )
    if len(config.identity_n) >= 2:
        yield Claim(
            "symbols.identity.ratio",
            "Data efficiency: how many times more strings vanilla needs for a test MSE"
            f" of {LEVEL:g}; log-linear between the measured n, a lower bound where"
            " vanilla never gets there.",
            "Figure 1c",
            "behaviour",
            ">= 10",
            Control("vanilla over vanilla of the next seed", "in [0.5, 2]"),
        )


def _controls(config: Config) -> Iterator[Claim]:
    n = config.compared_n
    if config.depth >= 2:
        deep = f"+aI with {config.depth} layers"
        yield Claim(
            "symbols.identity.depth1",
            f"The gain needs two layers, as CLS alone is read: test MSE of +aI with one"
            f" layer, n = {n}.",
            "implied by Section 4",
            "behaviour",
            ">= 0.6",
            Control(deep, "<= 0.15"),
        )
        yield Claim(
            "symbols.identity.depth1.gain",
            "With one layer aI changes little: absolute difference of test MSE from"
            " vanilla.",
            "implied by Section 4",
            "behaviour",
            "<= 0.2",
            Control("the same with all layers", ">= 0.45"),
        )
    yield Claim(
        "symbols.identity.orthogonal",
        "It is the identity that helps, not a further scalar: test MSE of W_K W_Q^T +"
        f" aQ with a random orthogonal Q, n = {n}.",
        "ours",
        "behaviour",
        ">= 0.6",
        Control("+aI", "<= 0.15"),
    )


def _others(config: Config) -> Iterator[Claim]:
    for name in config.other_tasks:
        yield Claim(
            f"symbols.identity.{name}",
            f"The same on {name}: test MSE of +aI, n = {config.other_n}.",
            "Figures 16, 21 and 22",
            "behaviour",
            "<= 0.3",
            Control(VANILLA, ">= 0.6"),
        )
