"""How claims are put together: what is measured, and what is ours."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from circuits.claims import Claim, Kind, Null
from circuits.conditions import Condition, Measure
from trained.errors import NothingChanged
from trained.symbols.setting import Setting

Quantity = Callable[[Any], float]
"""`Specimen` -> a number."""


def scores(setting: Setting, metric: str = "test") -> Measure:
    """A metric on unseen symbols, at each seed's best validation step."""
    return lambda lab: lab.scores(setting, metric)


def last(setting: Setting, metric: str = "test") -> Measure:
    """A metric on unseen symbols after the last step, where MLPs fit."""
    return lambda lab: lab.last_scores(setting, metric)


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
        try:
            return edit(specimen)
        except NothingChanged:
            return intact(specimen)

    return over(setting, measured)


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
