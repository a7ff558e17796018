"""Alignment grows with depth. Free of torch."""

from collections.abc import Iterator
from math import sqrt
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean
from trained.analogy.config import Config, Linear
from trained.analogy.theory import depth_cosine

from .expected import not_yet


def claims(config: Config) -> Iterator[Claim]:
    """H4 of the paper."""
    yield Claim(
        "analogy.depth.linear.two",
        "Deep linear network, two inputs per label: no pair with one label loses"
        " alignment from a layer to the next, and on average they gain.",
        "Theorem 6, Figure 1a",
        "signal",
        (
            Mean(
                "gain from the input to the last hidden layer",
                ">= 0.5",
                lambda lab: lab.depth(lambda same, _: _gain(same)),
            ),
            Each(
                "least step of any pair",
                f">= {-1 / sqrt(config.linear.width):.4g}",
                lambda lab: lab.depth(lambda same, _: same.diff(dim=0).min()),
            ),
        ),
        (
            UNTRAINED,
            Null(
                "different labels: largest cosine",
                measure=lambda lab: lab.depth(lambda _, other: other.mean(-1).max()),
                bound="<= 0.05",
            ),
        ),
        weight=2,
        not_tested=_out_of_reach(config.linear),
    )
    yield not_yet(
        "analogy.depth.linear.four",
        "The same with four inputs per label.",
        "Theorem 6, Figure 1a",
        "signal",
        1,
    )
    yield not_yet(
        "analogy.depth.gpt",
        "GPT-2 end to end on orthogonal inputs: those that share a label align more"
        " from layer to layer at the final position.",
        "Figure 1b, Appendix D",
        "signal",
        2,
    )


def _out_of_reach(sizes: Linear) -> str:
    """Why a gain of a half is not to be expected, if so."""
    if sizes.inputs_per_label != 2:
        return f"linear.inputs_per_label={sizes.inputs_per_label}"
    last = depth_cosine(sizes)
    return "" if last >= 0.6 else f"the theory gives so few layers {last:.2f}"


def _gain(curve: Any) -> float:
    """From first to last of the mean over pairs."""
    means: list[float] = curve.mean(-1).tolist()
    return means[-1] - means[0]
