"""What the claims of all headlines share."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from circuits.claims import SHUFFLED, UNTRAINED, Null
from circuits.conditions import Condition, Each, meets
from trained.lego.action import action
from trained.lego.config import Config, Standard, first_of_kind

PAPER_RATE = 1e-4
FAR = 160
"""The paper's longest chains."""
PREDICATE, ANSWER = 0, 1
SHORT, LONG = 10, 20
"""Lengths of Figures 6 and 7."""

Measured = Callable[[Any], Sequence[float]]
"""lab -> one value per seed."""


def slug(group: str) -> str:
    """An action's name in an id."""
    return action(group).slug.lower()


def theory_pair(config: Config) -> tuple[str, str]:
    """The two kinds of action of the theory's main models."""
    simple = first_of_kind(config.theory.groups, simply=True) or "C6"
    return simple, first_of_kind(config.theory.groups, simply=False) or "S5"


def grid_pair(config: Config) -> tuple[str, str]:
    """The two kinds of action whose models scale with d."""
    groups = config.theory.grid_groups
    simple = first_of_kind(groups, simply=True) or "C6"
    return simple, first_of_kind(groups, simply=False) or "S4"


def joint_pair(config: Config) -> tuple[str, str]:
    """The two kinds of action of the experiment."""
    groups = config.standard.groups
    simple = first_of_kind(groups, simply=True) or "C6"
    return simple, first_of_kind(groups, simply=False) or "S5"


def constants(config: Config) -> str:
    """What the paper leaves open for T, for a claim's text."""
    theory, own = config.theory, config.theory.attention
    return (
        f" (C_B = {theory.clip:g}, q = {theory.power}, rho = {theory.knee:g}, entries"
        f" of Q capped at {own.cap:g} per step)"
    )


POPULATION = (
    " Stage 1 draws its variables at every step, as the loss is an expectation over"
    " them; drawn once, the slope has the other sign (selection seeds)."
)


def survives(expected: str, own: Measured, halved: Measured) -> Condition:
    """A precondition: half the cap on a step of Q leads to the same side."""

    def same(lab: Any) -> list[float]:
        found = [meets(mean(values(lab)), expected) for values in (own, halved)]
        return [float(found[0] == found[1])]

    return Each("the same with half the cap", ">= 1", same)


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def too_few(n_variables: int, length: int) -> str:
    """Why chains of a length cannot be asked, if so."""
    if n_variables > length:
        return ""
    return f"chains of {length} need more than {n_variables} variables"


def untested(config: Config, *needs: str) -> str:
    """Why the experiment cannot be judged at this configuration, if so."""
    own = config.standard
    if not own.variants:
        return "standard.variants is empty: decided at --preset paper"
    if own.rate != PAPER_RATE:
        return f"Adam's rate is {own.rate}, the paper's {PAPER_RATE}"
    missing = [variant for variant in needs if variant not in own.variants]
    if missing:
        return f"standard.variants has no {missing[0]}: decided at --preset paper"
    return ""


def unseparated(config: Config) -> str:
    """Why the experiment's two actions cannot be compared here, if so."""
    small = config.standard.n_variables <= FAR
    return untested(config) or (
        "loss .03 and |X| < 160 show no limit of either action; --preset paper decides"
        if small
        else ""
    )


SEPARATED = (
    "Step 13: not tested below |X| = 160, where nothing separates the actions (the"
    " rubric's section 7); at |X| = 48 a smaller action had been judged in place of S5"
)


def through(*groups: str) -> Condition:
    """The gate: not judged if half of the seeds miss it."""

    def least(lab: Any) -> list[float]:
        return [min(lab.share_through(group)[0] for group in groups)]

    return Each("share of seeds through the gate", "> 0.5", least)


def sizes(own: Standard) -> str:
    """The sizes of the experiment, for a claim's text."""
    return (
        f" (|X| {own.n_variables}, width {5 * own.d_token}, FFN {own.d_mlp}, embeddings"
        f" N(0, {own.token_std:g}^2), batch {own.batch})"
    )


def of(what: str, *given: Any, **options: Any) -> Measured:
    """A method of the lab by name."""
    return partial(_call, what, given, options)


def _call(
    what: str, given: tuple[Any, ...], options: dict[str, Any], lab: Any
) -> Sequence[float]:
    return getattr(lab, what)(*given, **options)


def converged(what: str, group: str, *given: Any, **options: Any) -> Measured:
    """A method of the lab, of the experiment's converged models of an action."""

    def measure(lab: Any) -> Sequence[float]:
        return getattr(lab, what)(lab.converged(group), *given, **options)

    return measure


def absent(config: Config) -> tuple[Null, ...]:
    """The experiment's nulls: untrained, and trained on other sentences' values."""
    trained = config.standard.null_seeds or config.twins
    return (UNTRAINED, SHUFFLED) if trained else (UNTRAINED,)


def halfway(length: int) -> float:
    """Halfway to 1 from what uniform attention has on both targets.

    The query of answer l sees L + l + 1 clauses.

    >>> round(halfway(5), 2)
    0.63
    """
    uniform = sum(2 / (length + step + 1) for step in range(length)) / length
    return (1 + uniform) / 2


def no_theory(config: Config) -> str:
    """Why the theory cannot be judged at this configuration, if so."""
    return "" if config.theory.groups else "theory.groups is empty"
