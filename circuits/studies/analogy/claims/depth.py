"""Alignment grows with depth. Free of torch."""

from collections.abc import Iterator
from math import sqrt
from typing import Any

from circuits.claims import Claim, Null
from circuits.conditions import Each, Mean, Measure
from trained.analogy.config import Config, Linear
from trained.analogy.theory import depth_cosine

WORDS = {2: "two", 4: "four"}
WEIGHTS = {2: 2, 4: 1}
LABELLED, OWN = "gpt-labelled", "gpt-own_labels"


def claims(config: Config) -> Iterator[Claim]:
    """H4 of the paper."""
    for inputs in WORDS:
        yield _linear(config.linear, inputs)
    yield _gpt()


def _linear(sizes: Linear, inputs: int) -> Claim:
    def same(of: Any) -> Measure:
        return lambda lab: [of(curve) for curve, _ in lab.linear_depth(inputs)]

    return Claim(
        f"analogy.depth.linear.{WORDS[inputs]}",
        f"Deep linear network, {WORDS[inputs]} inputs per label: no pair with one label"
        " loses alignment from a layer to the next, and on average they gain.",
        "Theorem 6, Figure 1a",
        "signal",
        (
            Mean("gain from the input to the last hidden layer", ">= 0.5", same(gain)),
            Each(
                "least step of any pair",
                f">= {-1 / sqrt(sizes.width):.4g}",
                same(lambda curve: curve.diff(dim=0).min()),
            ),
        ),
        (
            Null("untrained", on=lambda lab: lab.untrained(), bound="<= 0.05"),
            Null(
                "pairs under shifted labels",
                measure=lambda lab: [gain(c) for _, c in lab.linear_depth(inputs)],
                bound="<= 0.05",
            ),
        ),
        weight=WEIGHTS[inputs],
        not_tested=_out_of_reach(sizes, inputs),
    )


def _gpt() -> Claim:
    def curves(of: Any, arm: str = LABELLED, pairs: int = 0) -> Measure:
        return lambda lab: [of(found[pairs]) for found in lab.labelled_depth(arm)]

    return Claim(
        "analogy.depth.gpt",
        "GPT-2 end to end on single orthonormal tokens: those that share a label align"
        " from layer to layer at the final position, from the embedding through every"
        " block to the final norm (mean over pairs).",
        "Figure 1b, Appendix D (a picture without numbers)",
        "signal",
        (
            Each("after the final norm", ">= 0.5", curves(last)),
            Each("least step", ">= -0.01", curves(least_step)),
        ),
        (
            Null("untrained", on=lambda lab: lab.untrained(), bound="<= 0.1"),
            Null("different labels", None, curves(last, pairs=1), "<= 0.1"),
            Null("each input its own label", None, curves(last, OWN), "<= 0.2"),
        ),
        weight=2,
    )


def last(curve: Any) -> float:
    """The mean over pairs at the last layer."""
    return float(curve[-1].mean())


def gain(curve: Any) -> float:
    """From first to last of the mean over pairs."""
    return last(curve) - float(curve[0].mean())


def least_step(curve: Any) -> float:
    """The smallest gain of the mean over pairs from a layer to the next."""
    return float(curve.mean(-1).diff().min())


def _out_of_reach(sizes: Linear, inputs: int) -> str:
    """Why a gain of a half is not to be expected, if so."""
    if inputs not in sizes.inputs_per_label:
        return f"linear.inputs_per_label={sizes.inputs_per_label} lacks {inputs}"
    found = depth_cosine(sizes, inputs)
    return "" if found >= 0.6 else f"the theory gives so few layers {found:.2f}"
