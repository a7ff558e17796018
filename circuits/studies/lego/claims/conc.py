"""Attention concentration is the mechanism (H3): what is read off."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Each, Mean
from trained.lego.action import action
from trained.lego.config import Config

from .cause import causes
from .common import (
    ANSWER,
    LONG,
    POPULATION,
    PREDICATE,
    SEPARATED,
    Measured,
    absent,
    constants,
    converged,
    grid_pair,
    halfway,
    joint_pair,
    no_theory,
    of,
    sizes,
    survives,
    theory_pair,
    through,
    unseparated,
    untested,
)
from .dilution import dilution
from .length import no_grid

NO_SIGN = (
    "Step 13: untrained models have no difference but a sign by chance, which had met"
    " the condition; they are held to the bound of the other null"
)


def concentration(config: Config) -> Iterator[Claim]:
    """Claims about attention; a run without the theory's models tests none of T's."""
    yield from _grid(config, grid_pair(config)[0])
    yield _phases(config, theory_pair(config)[0])
    yield from dilution(config)
    yield _fig2(config)
    yield _fig5(config)
    yield from _position(config)
    yield from _contrast(config)
    yield from causes(config)


def _grid(config: Config, simple: str) -> Iterator[Claim]:
    eps, reason = of("slope", simple, "eps"), no_grid(config)
    yield Claim(
        "lego.conc.eps.d-grid",
        f"T, {simple}, L = 2, one rule for all d: eps falls with d, slope in log-log <"
        " 0" + constants(config) + "." + POPULATION,
        "eq. 8",
        "signal",
        preconditions=(survives("< 0", eps, lambda lab: eps(lab.halved())),),
        conditions=(Mean("slope", "< 0", eps),),
        nulls=(
            UNTRAINED,
            Null("one loss for all d", on=lambda lab: lab.loose()),
            Null("Q = 0", measure=lambda lab: eps(lab.blind()), bound=">= -0.01"),
        ),
        weight=4,
        not_tested=reason,
    )
    diagonal, delta = of("slope", simple, "diagonal"), of("line", simple, "delta")
    largest = max(config.theory.grid, default=0)
    yield Claim(
        "lego.conc.logd",
        f"T, {simple}: both mean diagonals of Q rise with log d, Delta at L = 2 falls"
        " in d, the mean |off-diagonal| is at most a tenth of the diagonal (d ="
        f" {largest}).",
        "Section 6.2.1 Stage 2.3, Lemma D.45",
        "signal",
        preconditions=(
            survives("> 0", diagonal, lambda lab: diagonal(lab.halved())),
            survives("< 0", delta, lambda lab: delta(lab.halved())),
        ),
        conditions=(
            Mean("slope of the smaller diagonal", "> 0", diagonal),
            Mean("slope of Delta", "< 0", delta),
            Mean(
                "off-diagonal / diagonal", "<= 0.1", of("by_d", simple, largest, "rest")
            ),
        ),
        nulls=(
            UNTRAINED,
            Null("columns shuffled", on=lambda lab: lab.columns_shuffled()),
            Null("one loss for all d", on=lambda lab: lab.loose()),
        ),
        weight=3,
        not_tested=reason,
        revised="Step 13: Delta of mean attention, as p and a are means; the mean of"
        " single sentences' |p - a| had grown with the noise of Q's entries. Delta too"
        " must be on the same side with half the cap",
    )


def _phases(config: Config, simple: str) -> Claim:
    act = action(simple)
    tokens = config.theory.n_variables + act.n_actions + act.n_values + 1
    return Claim(
        "lego.conc.phases",
        f"T, {simple}, uncapped: Q43 leads Q44 before Q44 has half its end value, then"
        " the lead shrinks to at most half of its peak.",
        "Section 6.2.1",
        "signal",
        conditions=(
            Mean("early lead of Q43", "> 0", of("early_lead", simple)),
            Mean("end / peak", "<= 0.5", of("left_lead", simple)),
        ),
        nulls=(
            UNTRAINED,
            Null(
                "only step 2 trained",
                on=lambda lab: lab.second_only(),
                bound=f"< {1 / math.log(tokens):.3g}",
            ),
        ),
        weight=2,
        not_tested=no_theory(config),
        revised="Step 13: the rate is five times lower, as in 5 steps Q44 had passed"
        " half of its end value and nothing early was left to read; what the null must"
        " stay below, 1 / log d, is the paper's order of the lead (.07 against .27 on"
        " selection seeds were in view)",
    )


def _fig2(config: Config) -> Claim:
    groups, length = joint_pair(config), config.train_length
    return Claim(
        "lego.conc.fig2",
        f"E, {' and '.join(groups)}, L = {length}: the two targets are the largest"
        " entries of every query's row (mean of heads and sentences), and p + a is at"
        " least halfway from uniform to 1" + sizes(config.standard),
        "Figure 2",
        "signal",
        conditions=tuple(
            condition
            for group in groups
            for condition in (
                Each(f"{group}: rows", ">= 1", converged("banded", group)),
                Mean(
                    f"{group}: p + a",
                    f">= {halfway(length):.3g}",
                    converged("mass", group),
                ),
            )
        ),
        nulls=absent(config),
        weight=2,
        preconditions=(through(*groups),),
        not_tested=untested(config),
    )


def _fig5(config: Config) -> Claim:
    groups, length = joint_pair(config), config.train_length
    return Claim(
        "lego.conc.fig5",
        f"E, {' and '.join(groups)}, predicates permuted: p + a changes by less than"
        f" .02, all@{length} >= .95. Exact without positions, so it counts only if"
        " learned positions, trained alike, lose .2 of it.",
        "Figure 5",
        "signal",
        preconditions=(through(*groups),),
        conditions=tuple(
            condition
            for group in groups
            for condition in (
                Mean(
                    f"{group}: |change of p + a|",
                    "< 0.02",
                    converged("reordered", group, "mass"),
                ),
                Mean(
                    f"{group}: all@{length}",
                    ">= 0.95",
                    converged("reordered", group, "all"),
                ),
            )
        ),
        controls=(
            Each(
                "learned positions lose",
                ">= 0.2",
                lambda lab: lab.reordered(lab.standard(groups[0], "positions"), "loss"),
            ),
        ),
        nulls=absent(config),
        weight=3,
        not_tested=untested(config, "positions"),
    )


def _position(config: Config) -> Iterator[Claim]:
    simple, other = joint_pair(config)
    cases = (
        ("predicate", PREDICATE, other, simple, "Figure 6", 2),
        ("answer", ANSWER, simple, other, "Figure 7", 1),
    )
    for name, what, more, less, figure, weight in cases:
        yield Claim(
            f"lego.conc.position.{name}",
            f"E, L = {LONG}: attention to the {name} falls more from the first to the"
            f" last fifth of the steps in {more} than in {less} (relative drops).",
            figure,
            "signal",
            preconditions=(through(simple, other),),
            conditions=(Mean("drop minus drop", "> 0", _drops(more, less, what)),),
            nulls=(
                replace(UNTRAINED, bound="in [-0.1, 0.1]"),
                Null(
                    f"{simple} against itself, disjoint seeds",
                    measure=_unpaired_drops(simple, what),
                    bound="in [-0.1, 0.1]",
                ),
            ),
            weight=weight,
            not_tested=unseparated(config),
            revised=f"{NO_SIGN}. {SEPARATED}",
        )


def _drops(more: str, less: str, what: int) -> Measured:
    def measure(lab: Any) -> list[float]:
        pair = (lab.drop(found, what, LONG) for found in lab.paired(more, less))
        return lab.differences(*pair)

    return measure


def _unpaired_drops(group: str, what: int) -> Measured:
    def measure(lab: Any) -> list[float]:
        values = lab.drop(lab.converged(group), what, LONG)
        return lab.unpaired_differences(values)

    return measure


def _contrast(config: Config) -> Iterator[Claim]:
    simple, other = grid_pair(config)
    ratio = of("log_ratio", other, simple, "sharpness")
    cyclic = "C24" in config.theory.grid_groups
    yield Claim(
        "lego.conc.contrast.theory",
        f"T: {other} concentrates less than {simple} at equal d once the loss is"
        f" {config.theory.attention.rule:g} times its floor: log2 K({other}) /"
        f" K({simple}) < 0, mean over d" + constants(config),
        "Section 5",
        "signal",
        preconditions=(survives("< 0", ratio, lambda lab: ratio(lab.halved())),),
        conditions=(
            Mean(f"against {simple}", "< 0", ratio),
            *(
                Mean("against C24", "< 0", of("log_ratio", other, "C24", "sharpness"))
                for _ in range(cyclic)
            ),
        ),
        nulls=(
            UNTRAINED,
            Null(
                f"{simple} against itself, disjoint seeds",
                measure=of("unpaired_grid", simple, "sharpness", "mean"),
                bound="in [-0.5, 0.5]",
            ),
        ),
        weight=2,
        not_tested=no_grid(config),
    )
    one, two = joint_pair(config)
    yield Claim(
        "lego.conc.contrast.joint",
        f"E: {two} concentrates less than {one} at convergence: log2 K({two}) /"
        f" K({one}) < 0, K from eps at the training length" + sizes(config.standard),
        "Section 5",
        "signal",
        preconditions=(through(one, two),),
        conditions=(Mean("log2 K ratio", "< 0", _sharper(two, one)),),
        nulls=(
            replace(UNTRAINED, bound="in [-0.7, 0.7]"),
            Null(
                f"{one} against itself, disjoint seeds",
                measure=lambda lab: lab.unpaired_logs(
                    lab.sharpness(lab.converged(one))
                ),
                bound="in [-0.7, 0.7]",
            ),
        ),
        weight=2,
        not_tested=unseparated(config),
        revised=f"{NO_SIGN}. {SEPARATED}",
    )


def _sharper(above: str, below: str) -> Measured:
    def measure(lab: Any) -> list[float]:
        pair = (lab.sharpness(found) for found in lab.paired(above, below))
        return lab.log_ratios(*pair)

    return measure
