"""H6: recall of a value by its name."""

from collections.abc import Iterator
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Mean
from trained.symbols.config import Config
from trained.symbols.setting import recalling

from .measures import after, error, leaf_or_ours, over, scores

N, DEPTH = 4096, 4
"""Where the paper's two curves are compared, and its layers."""


def claims(config: Config) -> Iterator[Claim]:
    """Both scalars together, and what each of them does."""
    absent = "" if N in config.recall.n else f"needs recall.n = {N}"
    depth = config.recall_shape[1]
    shallow = (
        "" if depth == DEPTH else f"the paper has {DEPTH} layers, this run {depth}"
    )
    yield from leaf_or_ours(_curve(config, absent), "recall", shallow)
    yield _roles(config, absent)


def _curve(config: Config, absent: str) -> Claim:
    both, plain = recalling(config, N, "ab"), recalling(config, N)
    return Claim(
        "symbols.recall.curve",
        f"aI and bI together name the value of a variable: test error, n = {N},"
        f" {config.recall_shape[1]} layers, multiplier {config.multiplier:g}.",
        "Figure 2c",
        "behaviour",
        (
            Mean("both", "<= 0.3", scores(both, "test_error")),
            Mean("vanilla", ">= 0.4", scores(plain, "test_error")),
        ),
        nulls=(UNTRAINED,),
        weight=4,
        paper=0.108,
        not_tested=absent,
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
        controls=(
            Mean(
                "b = 0: share of answers that are one of the string's values",
                "<= 0.1",
                after(both, lambda s: s.without("b").value_share(), value_share),
            ),
        ),
        origin="ours",
        weight=2,
        not_tested=absent,
    )
