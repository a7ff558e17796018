"""Attention concentration is the mechanism (H3): what becomes of edited attention."""

from collections.abc import Iterator
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean
from trained.lego.action import action
from trained.lego.config import Config

from .common import (
    SEPARATED,
    Measured,
    absent,
    converged,
    joint_pair,
    theory_pair,
    through,
    unseparated,
    untested,
)

FACTOR = 1.25


def causes(config: Config) -> Iterator[Claim]:
    """Claims about what edits of learned attention change."""
    yield _half(config)
    yield _match(config)
    yield _sharpen(config)
    yield _exchange(config)


def _half(config: Config) -> Claim:
    groups = joint_pair(config)
    chances = [action(group).guess for group in groups]
    blunt = "" if max(chances) < 0.6 else "1.5 times chance is what other steps reach"
    return Claim(
        "lego.conc.fig2.cause",
        f"E, {' and '.join(groups)}: with the diagonals of each head's folded Q43 and"
        " Q44 at the mean of their rows' other entries for a random half of X, steps at"
        " these variables fall to 1.5 times chance, the others stay.",
        "Figure 2",
        "causal",
        conditions=tuple(
            condition
            for group in groups
            for condition in (
                Mean(
                    f"{group}: steps at these",
                    f"<= {1.5 * action(group).guess:.3g}",
                    converged("levelled", group, there=True),
                ),
                Mean(
                    f"{group}: other steps",
                    ">= 0.9",
                    converged("levelled", group, there=False),
                ),
            )
        ),
        controls=tuple(
            Mean(
                f"{group}: as many and as large off-diagonal edits",
                ">= 0.9",
                converged("levelled", group, there=True, elsewhere=True),
            )
            for group in groups
        ),
        nulls=absent(config),
        weight=2,
        preconditions=(through(*groups),),
        not_tested=untested(config) or blunt,
    )


def _match(config: Config) -> Claim:
    simple, other = joint_pair(config)
    return Claim(
        "lego.conc.cause.match",
        f"E: with the learned scores of {simple} times a factor that makes its K that"
        f" of {other} (set on other sentences), log L_x moves at least halfway to"
        f" {other}'s.",
        "Theorem 1.2",
        "causal",
        preconditions=(
            through(simple, other),
            Each(
                "seeds whose L_x differ by a quarter of an octave",
                ">= 2",
                lambda lab: [len(lab.apart(simple, other)[0])],
            ),
        ),
        conditions=(Mean("share of the way", ">= 0.5", _moved(simple, other)),),
        nulls=(
            UNTRAINED,
            Null(
                "scores scaled at other keys of the same block",
                measure=_moved(simple, other, wrong_keys=True),
            ),
        ),
        weight=2,
        not_tested=unseparated(config),
        revised="Step 13: of seeds whose L_x differ, two at least; that every seed's do"
        f" had been asked. {SEPARATED}",
    )


def _moved(simple: str, other: str, **how: bool) -> Measured:
    def measure(lab: Any) -> list[float]:
        return lab.moved(*lab.apart(simple, other), **how)

    return measure


def _sharpen(config: Config) -> Claim:
    groups = joint_pair(config)
    return Claim(
        "lego.conc.cause.sharpen",
        f"E, {' and '.join(groups)}: learned scores times {FACTOR} raise L_x (log2 of"
        " the quotient).",
        "Theorem 1.2",
        "causal",
        preconditions=(through(*groups),),
        conditions=tuple(
            Mean(f"{group}: gain", "> 0", converged("scaled", group, FACTOR))
            for group in groups
        ),
        nulls=(
            *absent(config),
            *(
                Null(
                    f"{group}: scores scaled at other keys of the same block",
                    measure=converged("scaled", group, FACTOR, wrong_keys=True),
                )
                for group in groups
            ),
        ),
        weight=2,
        not_tested=untested(config),
        revised="Step 13: seeds that solve the longest chains already are left out,"
        " after gains of exactly 0 had been seen",
    )


def _exchange(config: Config) -> Claim:
    simple, other = theory_pair(config)
    steps = config.theory.attention.weak_steps
    return Claim(
        "lego.conc.cause.theory",
        f"T, after {steps} steps of Algorithm 1: the FFN of {other} reaches farther"
        f" with the Q of {simple}, that of {simple} less far with the Q of {other}"
        " (log2 of L_x over its own).",
        "Theorem 1.2",
        "causal",
        preconditions=(
            Each(
                "L_x is neither the least nor the largest tested",
                ">= 1",
                lambda lab: lab.inside(simple, other),
            ),
        ),
        conditions=(
            Mean(f"{other} gains", "> 0", _swapped(other, simple)),
            Mean(f"{simple} gains", "< 0", _swapped(simple, other)),
        ),
        nulls=(
            UNTRAINED,
            Null(
                "the Q of its own action's next seed",
                measure=lambda lab: lab.exchange_gain(other, other),
                bound="in [-0.5, 0.5]",
            ),
        ),
        weight=1,
        not_tested="" if config.theory.groups else "theory.groups is empty",
    )


def _swapped(body: str, eyes: str) -> Measured:
    return lambda lab: lab.exchange_gain(body, eyes)
