"""Attention concentration is the mechanism (H3): how longer chains dilute it."""

from collections.abc import Iterator
from typing import Any

from circuits.claims import Claim, Null
from circuits.conditions import Condition, Mean
from trained.lego.config import Config

from .common import (
    ANSWER,
    LONG,
    PREDICATE,
    SHORT,
    Measured,
    halfway,
    joint_pair,
    no_theory,
    sizes,
    theory_pair,
    through,
    too_few,
    untested,
)

UNIFORM = (
    "Step 13: uniform attention obeys the law too, with the K of chance, so untrained"
    " models had met every condition; they are no null any more, and p + a at the"
    " training length became a precondition"
)


def dilution(config: Config) -> Iterator[Claim]:
    """Claims about what longer chains leave of concentrated attention."""
    law = (
        "K fitted at L = 5 predicts eps at the longest L within 10 %, and p and a are"
        " lower at 20 than at 10"
    )
    simple, other = theory_pair(config)
    yield Claim(
        "lego.conc.dilution.theory",
        f"T, {simple} and {other}: {law}.",
        "Section 6.2.1",
        "signal",
        preconditions=tuple(
            _concentrated(config, group, _ends(group)) for group in (simple, other)
        ),
        conditions=tuple(
            condition
            for group in (simple, other)
            for condition in _diluted(group, _ends(group))
        ),
        nulls=(
            Null("eps constant in L", measure=_constant(_ends(simple)), bound="> 0.1"),
        ),
        weight=1,
        not_tested=no_theory(config) or too_few(config.theory.n_variables, LONG),
        revised=UNIFORM,
    )
    yield _dilution_joint(config, law)


def _dilution_joint(config: Config, law: str) -> Claim:
    pair = joint_pair(config)
    nulls = [
        Null(
            "learned positions",
            measure=lambda lab: lab.diluted(lab.standard(pair[0], "positions")),
        )
        for _ in range("positions" in config.standard.variants)
    ]
    return Claim(
        "lego.conc.dilution.joint",
        f"E, {' and '.join(pair)}: {law}" + sizes(config.standard),
        "Section 7",
        "signal",
        preconditions=(
            through(*pair),
            *(_concentrated(config, group, _through(group)) for group in pair),
        ),
        conditions=tuple(
            condition
            for group in pair
            for condition in _diluted(group, _through(group))
        ),
        nulls=(
            *nulls,
            Null(
                "eps constant in L",
                measure=_constant(_through(pair[0])),
                bound="> 0.1",
            ),
        ),
        weight=2,
        not_tested=untested(config) or too_few(config.standard.n_variables, LONG),
        revised=UNIFORM,
    )


def _concentrated(config: Config, group: str, models: Any) -> Condition:
    """A precondition: there is something to dilute."""
    expected = f">= {halfway(config.train_length):.3g}"
    return Mean(f"{group}: p + a", expected, lambda lab: lab.mass(models(lab)))


def _ends(group: str) -> Any:
    return lambda lab: lab.algorithms_end(group)


def _through(group: str) -> Any:
    return lambda lab: lab.converged(group)


def _constant(models: Any) -> Measured:
    return lambda lab: lab.diluted(models(lab), constant=True)


def _diluted(group: str, models: Any) -> Iterator[Condition]:
    yield Mean(f"{group}: error", "<= 0.1", lambda lab: lab.diluted(models(lab)))
    for name, what in (("p", PREDICATE), ("a", ANSWER)):
        yield Mean(
            f"{group}: {name} at {SHORT} minus at {LONG}",
            "> 0",
            _fall(models, what),
        )


def _fall(models: Any, what: int) -> Measured:
    return lambda lab: lab.falls(models(lab), what, SHORT, LONG)
