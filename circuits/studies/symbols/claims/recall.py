"""H6: recall of a value by its name."""

from collections.abc import Iterator
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Mean
from trained.symbols.config import Config
from trained.symbols.setting import recalling

from .curves import value
from .measures import (
    GPU,
    after,
    at_both_steps,
    error,
    leaf_or_ours,
    ours,
    over,
    scores,
    shuffled,
    turned_excess,
)

N, DEPTH = 4096, 4
"""Where the paper's two curves are compared, and its layers."""


def claims(config: Config) -> Iterator[Claim]:
    """Both scalars together, and what each of them does."""
    absent = "" if N in config.recall.n else f"needs recall.n = {N}; {GPU}"
    depth = config.recall.depth
    shallow = (
        "" if depth == DEPTH else f"the paper has {DEPTH} layers, this run {depth}"
    )
    yield from leaf_or_ours(_curve(config, absent), "recall", shallow)
    yield _roles(config, absent)
    if not absent:
        yield _alone(config)


def _curve(config: Config, absent: str) -> Claim:
    both, plain = recalling(config, N, "ab"), recalling(config, N)
    own = config.recall
    return Claim(
        "symbols.recall.curve",
        f"aI and bI together name the value of a variable: test error, {own.task}, n ="
        f" {N}, {own.depth} layers, d = {own.d_model}, rates {own.lrs}, at most"
        f" {own.max_steps} steps, multiplier {own.multiplier:g}.",
        "Figure 2c",
        "behaviour",
        (
            *at_both_steps("both", "<= 0.3", both, "test_error"),
            *at_both_steps("vanilla", ">= 0.4", plain, "test_error"),
        ),
        nulls=(UNTRAINED, shuffled(scores(both, "test_error"))),
        weight=4,
        paper=value(own.task, "ab", N),
        not_tested=absent,
    )


def _alone(config: Config) -> Claim:
    one, other = (recalling(config, N, i) for i in ("a", "b"))
    return ours(
        "recall.alone",
        f"Either scalar alone does not recall: test error, n = {N}.",
        "behaviour",
        (
            Mean("aI alone", ">= 0.3", scores(one, "test_error")),
            Mean("bI alone", ">= 0.3", scores(other, "test_error")),
        ),
        {"both": ("<= 0.3", scores(recalling(config, N, "ab"), "test_error"))},
    )


def value_share(specimen: Any) -> float:
    """The share of answers that are one of the string's values, as it is."""
    return float(specimen.value_share())


def _roles(config: Config, absent: str) -> Claim:
    both = recalling(config, N, "ab")
    return Claim(
        "symbols.recall.roles",
        f"b names, a finds: without b no unseen symbol is named, without a one of the"
        f" two values at random; n = {N}.",
        "ours, after Section 5",
        "causal",
        (
            Mean(
                "b = 0: test error",
                ">= 0.95",
                after(both, lambda s: s.without("b").error()),
            ),
            Mean(
                "a = 0: test error",
                "in [0.4, 0.6]",
                after(both, lambda s: s.without("a").error()),
            ),
            Mean(
                "a = 0: share of answers that are one of the string's values",
                ">= 0.9",
                after(both, lambda s: s.without("a").value_share(), value_share),
            ),
        ),
        nulls=(
            Null(
                "not edited: test error",
                measure=over(both, error),
                bound="<= 0.3",
            ),
            UNTRAINED,
        ),
        controls=tuple(
            Mean(
                f"rise by taking {scalar}Q off, Q random orthogonal, minus half that by"
                f" {scalar}I",
                "<= 0",
                turned_excess(both, scalar),
            )
            for scalar in ("a", "b")
        ),
        origin="ours",
        weight=2,
        not_tested=absent,
    )
