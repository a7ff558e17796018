"""How claims are put together: what is measured, what is trained, and what is ours."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from circuits.claims import Claim, Kind, Null
from circuits.conditions import Condition, Mean, Measure
from trained.errors import or_intact
from trained.symbols.config import Config
from trained.symbols.setting import Setting, settings

Quantity = Callable[[Any], float]
"""`Specimen` -> a number."""

LATER = "decided at --preset paper"
GPU = (
    "needs a GPU, not run here: reasonscope confirm symbols --preset gpu --device cuda"
)


def scores(setting: Setting, metric: str = "test") -> Measure:
    """A metric on unseen symbols, at each seed's best validation step."""
    return lambda lab: lab.scores(setting, metric)


def last(setting: Setting, metric: str = "test") -> Measure:
    """A metric on unseen symbols after the last step, where MLPs fit."""
    return lambda lab: lab.last_scores(setting, metric)


def at_both_steps(
    name: str, expected: str, setting: Setting, metric: str = "test"
) -> tuple[Mean, Mean]:
    """A metric's mean at the best step on validation, and after the last step.

    The symbols of validation are unseen too, so the best step is an oracle's.
    """
    return (
        Mean(name, expected, scores(setting, metric)),
        Mean(f"{name}, last step", expected, last(setting, metric)),
    )


def minus(first: Measure, second: Measure) -> Measure:
    """Seed by seed."""
    return lambda lab: lab.difference(first(lab), second(lab))


def shuffled(measure: Measure) -> Null:
    """The null of one measure: the networks taught permuted answers."""
    return Null("shuffled labels", measure=lambda lab: measure(lab.shuffled()))


def over(setting: Setting, quantity: Quantity) -> Measure:
    """A quantity of every seed's `Specimen`."""
    return lambda lab: lab.over(setting, quantity)


def error(specimen: Any) -> float:
    """The test error as it is."""
    found: float = specimen.error()
    return found


def no_change(_: Any) -> float:
    """Of a difference to the intact model: none."""
    return 0.0


def after(setting: Setting, edit: Quantity, intact: Quantity = error) -> Measure:
    """A quantity after an edit; that of the intact model if there is nothing to edit.

    An untrained a is 0, so that taking it off changes nothing: no effect is what the
    null then has, rather than no value.
    """

    def measured(specimen: Any) -> float:
        return or_intact(lambda: edit(specimen), lambda: intact(specimen))

    return over(setting, measured)


def turned_excess(
    setting: Setting, scalar: str, *layers: int, error_of: str = "error"
) -> Measure:
    """Harm of taking a rotation of a scalar's size off, less half that of the scalar.

    Args:
        setting: the networks.
        scalar: "a" or "b".
        layers: where; all of them if none is given.
        error_of: which error of a specimen.
    """

    def excess(specimen: Any) -> float:
        intact, off, turned = (
            getattr(one, error_of)()
            for one in (
                specimen,
                specimen.without(scalar, *layers),
                specimen.turned(scalar, *layers),
            )
        )
        return float(turned - intact - (off - intact) / 2)

    return after(setting, excess, no_change)


def given(*gates: Condition) -> Callable[[Claim], Claim]:
    """A claim that is judged only where some conditions hold.

    They are its conditions too, so that its nulls have to meet them as well: a network
    that has learned nothing answers at chance before an edit and after it.
    """
    return lambda claim: replace(
        claim,
        conditions=(*claim.conditions, *gates),
        preconditions=(*claim.preconditions, *gates),
    )


@cache
def trained(config: Config) -> frozenset[Setting]:
    """What a run of a configuration has."""
    return frozenset(settings(config))


def absent(config: Config, needs: tuple[Setting, ...], otherwise: str = LATER) -> str:
    """Why a claim cannot be judged here, if this configuration lacks what it needs."""
    missing = [setting.name for setting in needs if setting not in trained(config)]
    return (
        f"this configuration does not train {missing[0]}; {otherwise}"
        if missing
        else ""
    )


def unlike_paper(config: Config) -> str:
    """Why the paper's curves say nothing of this configuration's data, if so."""
    own = config.training
    if own.train_alphabet is not None:
        return f"no paper value for train_alphabet = {own.train_alphabet}"
    return (
        f"no paper value for label_noise = {own.label_noise:g}"
        if own.label_noise
        else ""
    )


def ours(
    name: str,
    statement: str,
    kind: Kind,
    conditions: Condition | tuple[Condition, ...],
    nulls: Mapping[str, tuple[str, Measure]],
    *more: Null,
    revised: str | None = None,
) -> Claim:
    """A claim of ours; nulls are given as name -> (bound, measure)."""
    return Claim(
        f"symbols.ours.{name}",
        statement,
        "ours",
        kind,
        conditions if isinstance(conditions, tuple) else (conditions,),
        nulls=(
            *(Null(k, measure=own, bound=bound) for k, (bound, own) in nulls.items()),
            *more,
        ),
        origin="ours",
        revised=revised,
    )


def leaf_or_ours(claim: Claim, name: str, obstacle: str) -> Iterator[Claim]:
    """A leaf; outside the paper's setting not tested, with the same as ours beside."""
    if not obstacle or claim.not_tested:
        yield claim
    else:
        yield replace(claim, not_tested=obstacle)
        yield replace(claim, id=f"symbols.ours.{name}", origin="ours", weight=1)
