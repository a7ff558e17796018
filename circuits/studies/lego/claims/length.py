"""Algebra dictates length (H2)."""

from collections.abc import Iterator
from typing import Any

from circuits.claims import UNTRAINED, Claim, Null
from circuits.conditions import Mean
from trained.lego.action import action
from trained.lego.config import Config

from .common import (
    FAR,
    POPULATION,
    Measured,
    absent,
    constants,
    converged,
    grid_pair,
    joint_pair,
    of,
    sizes,
    survives,
    through,
    unseparated,
    untested,
)

EXTRAPOLATED = (
    "L_x (where half of the chains are right, from K and the eps that the FFN"
    " tolerates, as |X| - 1 would censor it)"
)


def length(config: Config) -> Iterator[Claim]:
    """Claims about how far chains generalise."""
    simple, other = grid_pair(config)
    yield _grid(config, simple)
    yield _contrast(config, simple, other)
    yield from _joint(config, *joint_pair(config))


def no_grid(config: Config) -> str:
    """Why nothing scales with d at this configuration, if so."""
    few = len(config.theory.grid) < 3 or not config.theory.groups
    return "theory.grid has fewer than three d" if few else ""


def _grid(config: Config, simple: str) -> Claim:
    slope = of("slope", simple, "reach")
    # C24 stands beside S4, which has as many actions.
    others = [g for g in config.theory.grid_groups if g not in (simple, "C24")]
    others = [g for g in others if action(g).is_simply_transitive]
    return Claim(
        "lego.length.theory.d-grid",
        f"T, {simple}, d = {_listed(config.theory.grid)}, Q trained on L = 2 until the"
        f" loss is {config.theory.attention.rule:g} times the clip's floor:"
        f" {EXTRAPOLATED} grows with d, slope in log-log > 0 (the theorem's c* is below"
        " 1)" + constants(config) + "." + POPULATION,
        "Theorem 4.1, eq. 7",
        "behaviour",
        preconditions=(survives("> 0", slope, lambda lab: slope(lab.halved())),),
        conditions=tuple(
            Mean(f"{group}: slope", "> 0", of("slope", group, "reach"))
            for group in (simple, *others)
        ),
        controls=(
            Mean(
                "solved at L_x / 3, not at 3 L_x, where asked",
                ">= 0.9",
                of("foretold", simple),
            ),
        ),
        nulls=(
            UNTRAINED,
            Null("one loss for all d", on=lambda lab: lab.loose()),
            Null("Q = 0", measure=lambda lab: slope(lab.blind()), bound="<= 0.1"),
        ),
        weight=5,
        not_tested=no_grid(config),
    )


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _contrast(config: Config, simple: str, other: str) -> Claim:
    difference = of("slope_difference", other, simple, "reach")
    pairs = [(other, simple)]
    groups = config.theory.grid_groups
    pairs += (
        [(other, "C24")] if "C24" in groups and action(other).n_actions == 24 else []
    )
    return Claim(
        "lego.length.theory.contrast",
        f"T: {other} reaches a constant factor only (the informal theorem's word;"
        " Theorem 5.1 bounds from below): its slope of L_x on d is below that of"
        f" {simple}, and the quotient of both falls in d; the same rule, loss and d.",
        "Theorem 1.2",
        "behaviour",
        preconditions=(
            survives("< 0", difference, lambda lab: difference(lab.halved())),
        ),
        conditions=(
            Mean("slope minus slope", "< 0", difference),
            *(
                Mean(
                    f"slope of L_x({one}) / L_x({two})",
                    "< 0",
                    of("ratio_slope", one, two, "reach"),
                )
                for one, two in pairs
            ),
        ),
        nulls=(
            Null(
                f"{simple} against itself, disjoint seeds",
                measure=of("unpaired_grid", simple, "reach", "slope"),
                bound="in [-0.2, 0.2]",
            ),
        ),
        weight=5,
        not_tested=no_grid(config),
    )


def _joint(config: Config, simple: str, other: str) -> Iterator[Claim]:
    own, first = config.standard, config.train_length
    whole = own.n_variables > FAR
    far = FAR if whole else 2 * first
    label = "" if whole else " (2x; the paper's 160 needs --preset paper)"
    reason = untested(config)
    positions = "positions" in own.variants
    nulls = absent(config)
    if positions:
        nulls += (
            Null(
                "learned positions",
                measure=lambda lab: lab.solved_at(
                    lab.standard(simple, "positions"), far
                ),
            ),
        )
    yield Claim(
        "lego.length.joint.c6",
        f"E, {simple}: trained at length {first}, chains of {far} are solved{label}"
        + sizes(own),
        "Figure 1a; Section 7",
        "behaviour",
        preconditions=(through(simple),),
        conditions=(Mean(f"all@{far}", ">= 0.9", converged("solved_at", simple, far)),),
        nulls=nulls,
        weight=5,
        paper=1.0,
        not_tested=reason,
    )
    yield Claim(
        "lego.length.joint.s5",
        f"E, {other} after as many epochs: a constant factor beyond {first}, less far"
        f" than {simple}: log2 L_x({simple}) / L_x({other}) > 0, all@{FAR} <= .5, L_x"
        " >= 10",
        "Figure 1a",
        "behaviour",
        preconditions=(through(simple, other),),
        conditions=(
            Mean("log2 of the quotient", "> 0", _farther(simple, other)),
            Mean(f"{other}: all@{FAR}", "<= 0.5", converged("solved_at", other, FAR)),
            Mean(f"{other}: L_x", ">= 10", converged("crossings", other)),
        ),
        nulls=(
            UNTRAINED,
            Null(
                f"{simple} against itself, disjoint seeds",
                measure=lambda lab: lab.unpaired_logs(
                    lab.crossings(lab.converged(simple))
                ),
                bound="in [-0.7, 0.7]",
            ),
        ),
        weight=5,
        not_tested=unseparated(config),
    )


def _farther(simple: str, other: str) -> Measured:
    def measure(lab: Any) -> list[float]:
        pair = (lab.crossings(found) for found in lab.paired(simple, other))
        return lab.log_ratios(*pair)

    return measure
