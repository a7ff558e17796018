"""Headline D: Section 5 with the constructed memory; Adam, random bijections.

The pieces that other settings' claims are built of are here too.
"""

from collections.abc import Iterator

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Condition, Each
from trained.recall.config import Config

CONVERGED_STEPS = 2500
"""Whole-matrix training shorter than this is judged with the wider tolerances."""

GAPS = {2: 0.08, 3: 0.03, 4: 0.01}
"""Least difference between pairs, by the number of examples."""

PAIRWISE_BELOW = 0.06
"""The figures have T <= 0.05; from about 0.07 the best attention drops a pair."""


def claims(config: Config) -> Iterator[Claim]:
    """Figure 2, and its second step."""
    yield Claim(
        "recall.fig2a.pattern",
        "Whole-matrix training gives the pairwise row 1: equal inside pairs, different"
        " across them, little elsewhere.",
        "Figure 2(a); Section 2.2",
        "signal",
        weight=5,
        paper=1.0,
        conditions=_conditions(config, "full-random", config.n_examples),
        nulls=(UNTRAINED, pairs_crossed("full-random")),
        not_tested=too_hot(config.temperature),
    )
    yield Claim(
        "recall.fig2b.pattern",
        "Three examples: three distinct pair weights.",
        "Figure 2(b)",
        "signal",
        weight=3,
        paper=1.0,
        conditions=_conditions(config, "triple", 3),
        nulls=(UNTRAINED, pairs_crossed("triple")),
        not_tested=too_hot(config.triple.temperature)
        if config.triple.steps
        else "triple.steps is 0",
    )
    yield Claim(
        "recall.step2.perfect.fig2a",
        "Step-2 test accuracy is perfect in every seed: whole matrix, fresh prompts.",
        "Section 5, sentence before Figure 3",
        "behaviour",
        weight=1,
        paper=1.0,
        conditions=(answer_found("full-random", ">= 0.999", universal=True),),
        nulls=(UNTRAINED, other_relation("full-random")),
    )


def _conditions(config: Config, arm: str, n_examples: int) -> tuple[Condition, ...]:
    wide = is_short(config, arm)
    return (*pairwise(arm, n_examples=n_examples, wide=wide), relation_found(arm))


def pairwise(arm: str, *, n_examples: int, wide: bool) -> tuple[Condition, ...]:
    """The pairwise pattern in every seed; `wide` for training that is cut short."""
    return (
        Each(
            "within-pair ratio",
            "<= 1.1" if wide else "<= 1.05",
            lambda lab: lab.ratio(arm),
        ),
        Each("gap between pairs", f">= {GAPS[n_examples]}", lambda lab: lab.gap(arm)),
        Each("rest", "<= 0.05" if wide else "<= 0.02", lambda lab: lab.rest(arm)),
    )


def pairs_crossed(arm: str) -> Null:
    """Each subject paired with the other example's answer."""
    return Null(
        "pairs crossed",
        measure=lambda lab: lab.ratio(arm, crossed=True),
        bound=">= 1.2",
    )


def relation_found(arm: str) -> Condition:
    """The relation is recovered as well as it can be."""
    return Each(
        "relation accuracy / Bayes ceiling",
        ">= 0.99",
        lambda lab: lab.relative_accuracy(arm),
    )


def answer_found(arm: str, expected: str, *, universal: bool = False) -> Condition:
    """The answer is right once the relation is written."""
    return Each(
        "answer given the relation",
        expected,
        lambda lab: lab.answered(arm),
        universal=universal,
    )


def other_relation(arm: str) -> Null:
    """The answer is not right with another relation in its place."""
    return Null(
        "another relation written",
        measure=lambda lab: lab.answered(arm, shift=1),
        bound="<= 0.3",
    )


def is_short(config: Config, arm: str) -> bool:
    """Whether an arm's training is cut short."""
    steps = {"full": config.full_steps, "triple": config.triple.steps}
    return steps.get(arm.split("-")[0], CONVERGED_STEPS) < CONVERGED_STEPS


def too_hot(temperature: float) -> str:
    """Why the pairwise pattern is not expected at a temperature, if so."""
    if temperature <= PAIRWISE_BELOW:
        return ""
    return f"the best attention drops a pair at high temperature; T={temperature:g}"
