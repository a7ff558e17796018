"""Headline D: Section 5 with the constructed memory; Adam, random bijections.

The pieces that other settings' claims are built of are here too.
"""

from collections.abc import Iterator
from typing import Any

from circuits.claims import SHUFFLED, UNTRAINED, Claim, Null
from circuits.conditions import Condition, Each, Mean, Measure
from trained.recall.config import Config, memory_arm

CONVERGED_STEPS = 2500
"""Whole-matrix training shorter than this is judged with the wider tolerances."""

GAPS = {2: 0.08, 3: 0.03, 4: 0.01}
"""Least difference between pairs, by the number of examples."""

PAIRWISE_BELOW = 0.06
"""The figures have T <= 0.05; from about 0.07 the best attention drops a pair."""


HOT = Null("too high a temperature", on=lambda lab: lab.hot())

PILOT = (
    "the rubric's limits called ours were chosen with one to ten seeds in view"
    " (100-109, 200-209), before Step 9"
)


def claims(config: Config) -> Iterator[Claim]:
    """Figures 2 and 3, and the second step."""
    yield _figure_2a(config)
    yield Claim(
        "recall.fig2b.pattern",
        "Three examples: three distinct pair weights.",
        "Figure 2(b)",
        "signal",
        weight=3,
        paper=1.0,
        conditions=_conditions(config, "triple", 3),
        nulls=(UNTRAINED, SHUFFLED, HOT, pairs_crossed("triple")),
        not_tested=too_hot(config.triple.temperature)
        if config.triple.steps
        else "triple.steps is 0; decided at --preset paper",
    )
    yield _second_row(config)
    yield _whole(config)
    yield _partial(config)
    yield from _second_step(config)


def _figure_2a(config: Config) -> Claim:
    return Claim(
        "recall.fig2a.pattern",
        "Whole-matrix training gives the pairwise row 1: equal inside pairs, different"
        f" across them, little elsewhere. {config.full_steps} batches of"
        f" {config.full_batch} fresh prompts.",
        "Figure 2(a); Section 2.2",
        "signal",
        weight=5,
        paper=1.0,
        conditions=_conditions(config, "full-random", config.n_examples),
        nulls=(UNTRAINED, SHUFFLED, HOT, pairs_crossed("full-random")),
        not_tested=too_hot(config.temperature),
    )


def _second_row(config: Config) -> Claim:
    missing = not config.pretrained.steps or "caption" not in config.pretrained.readings

    def more(lab: Any) -> list[float]:
        width = config.pretrained.widths[0]
        learned = lab.end_token(memory_arm("caption", width))
        return [
            a - b for a, b in zip(learned, lab.end_token("full-random"), strict=False)
        ]

    return Claim(
        "recall.row2",
        "Step 2 looks most at the query; EoS gets weight only with a pretrained MLP"
        " (Figure 4's caption temperature in both phases).",
        "Sections 4.3, 5; rows 2 of Figures 2, 4",
        "signal",
        weight=1,
        conditions=(
            Each(
                "query above any other",
                "> 0",
                lambda lab: lab.query_lead("full-random"),
            ),
            Each("EoS, learned minus constructed memory", ">= 0.1", more),
        ),
        nulls=(UNTRAINED,),
        not_tested="pretrained.readings has no caption" * missing,
    )


def _whole(config: Config) -> Claim:
    samples = config.samples
    tables = ", ".join(map(str, samples.subjects))
    readings = len(samples.readings)
    return Claim(
        "recall.fig3.whole",
        f"{samples.few} prompts are enough for step 1: whole W^KQ, accuracy over"
        f" ceiling for most |S| of {tables} in the best of {readings} readings (T by"
        f" initial spread); {samples.steps} full-batch steps of Adam on both losses.",
        "Figure 3, Section 5",
        "behaviour",
        weight=5,
        paper=1.0,
        conditions=(
            Mean(
                f"accuracy / ceiling, N={samples.few}",
                ">= 0.95",
                lambda lab: lab.best_reading(samples.few),
            ),
        ),
        nulls=(
            UNTRAINED,
            Null("1 prompt", measure=lambda lab: lab.best_reading(min(samples.sizes))),
        ),
        not_tested=_no_samples(config),
    )


def _no_samples(config: Config) -> str:
    samples = config.samples
    if not samples.subjects or "adam" not in samples.modes:
        return "samples: no table, or not with Adam"
    if min(samples.sizes) >= 8 or 8 not in samples.sizes:
        return "the paper says 8 prompts, against fewer"
    return ""


def _partial(config: Config) -> Claim:
    wanted = config.partial
    tables = tables_of(config)

    def at(what: str, table: tuple[str, int], expected: str) -> Condition:
        return Mean(
            f"{what}, {table[0]} {table[1]}, N=8",
            expected,
            lambda lab: lab.partial(what, table, 8),
        )

    def one(table: tuple[str, int]) -> Null:
        return Null(
            f"1 prompt: excess, {table[0]} {table[1]}",
            measure=lambda lab: lab.partial("excess", table, 1),
            bound=">= 0.03",
        )

    named = ", ".join(f"{kind} {n}" for kind, n in tables)
    enough = {1, 8} <= set(wanted.sizes) and bool(tables) and config.n_examples == 2
    return Claim(
        "recall.fig3.partial",
        "Eight prompts are enough for step 1: theta and omega only. Test L1 above that"
        " of the population's best attention, and accuracy over ceiling (relative),"
        f" which one prompt meets too. Tables: {named}.",
        "Figure 3 read as partial fine-tuning",
        "behaviour",
        weight=2,
        paper=1.0,
        conditions=(
            *(at("excess", table, "<= 0.02") for table in tables),
            *(at("relative", table, ">= 0.99") for table in tables),
        ),
        nulls=(*map(one, tables), UNTRAINED),
        not_tested="" if enough else "partial.sizes needs 1 and 8, and two examples",
        revised=f"{PILOT}; Step 9: 8000 steps (16000 at paper) instead of 4000, with"
        " which the excess was .04 whatever the number of prompts (seeds 100-104), and"
        " 500 prompts for the population instead of 2000, for speed",
    )


def tables_of(config: Config) -> list[tuple[str, int]]:
    """The tables of partial fine-tuning: kind and size."""
    wanted = config.partial
    quarter = [("affine", wanted.quarter)] if wanted.quarter else []
    return [("random", n) for n in wanted.subjects] + quarter


def _second_step(config: Config) -> Iterator[Claim]:
    """Step 2 in every setting and seed, by mode."""
    tables, sizes = tables_of(config), config.partial.sizes

    def partial(lab: Any) -> list[float]:
        cells = [(table, size) for table in tables for size in sizes]
        return [v for cell in cells for v in lab.partial("answered", *cell)]

    yield _perfect(
        "whole",
        "whole matrix, every cell of Figure 3",
        2,
        lambda lab: lab.second_steps(),
        Null(
            "answers permuted",
            measure=lambda lab: lab.permuted("answered"),
            bound="< 0.999",
        ),
        _no_samples(config),
    )
    yield _perfect(
        "partial",
        "theta and omega only, every cell of Figure 3",
        1,
        partial,
        SHUFFLED,
        "" if tables else "no tables of partial fine-tuning",
    )
    arms = ["full-random"] + ["triple"] * bool(config.triple.steps)
    yield _perfect(
        "fig2",
        "whole matrix, fresh prompts, Figure 2",
        1,
        lambda lab: [value for arm in arms for value in lab.answered(arm)],
        SHUFFLED,
        "",
    )


def _perfect(
    name: str, where: str, weight: int, measure: Measure, permuted: Null, missing: str
) -> Claim:
    return Claim(
        f"recall.step2.perfect.{name}",
        f"Step-2 test accuracy is perfect in every setting and seed: {where}.",
        "Section 5, sentence before Figure 3",
        "behaviour",
        weight=weight,
        paper=1.0,
        conditions=(
            Each("answer given the relation", ">= 0.999", measure, universal=True),
        ),
        nulls=(UNTRAINED, permuted),
        not_tested=missing,
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
        Each(
            "within-pair ratio of single prompts, median",
            "<= 1.1" if wide else "<= 1.05",
            lambda lab: lab.prompt_ratio(arm),
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
