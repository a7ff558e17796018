"""Claims and verdicts: what a paper says, and what was measured.

A claim is written once, before the run: statement, expectation, how it is measured (a
function of a lab), and the nulls that lack the mechanism. A verdict is computed from
it and from what was measured; nothing sets it. Free of torch at import.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from trained.errors import NothingChanged, unknown

from .conditions import Condition, Measure, Outcome, meets

Kind = Literal["behaviour", "signal", "causal", "theory"]
Origin = Literal["paper", "ours"]
Word = Literal["confirmed", "refuted", "inconclusive", "not tested"]

FEWEST = 3
"""Replicates without which nothing random is confirmed."""


class NotTested(Exception):
    """Raised by a lab that lacks what a claim needs; says what."""


@dataclass(frozen=True)
class Null:
    """The same quantity where the mechanism is absent: it must not pass.

    Either another lab, on which all conditions of the claim are measured, or another
    measure on the same lab, held against the claim's first condition or against a
    stricter bound of its own.

    Attributes:
        name: what was taken away.
        on: lab -> the lab that lacks the mechanism.
        measure: lab -> values, where the null is no lab.
        bound: what the null's mean must meet to count as absent; None: it must only
            miss the expectation.
    """

    name: str
    on: Callable[[Any], Any] | None = None
    measure: Measure | None = None
    bound: str | None = None

    def __post_init__(self) -> None:
        if (self.on is None) == (self.measure is None):
            raise ValueError(f"null {self.name}: give either a lab or a measure")
        if self.bound is not None:
            meets(0.0, self.bound)


UNTRAINED = Null("untrained", on=lambda lab: lab.untrained())
"""Every model with the weights it had before training."""

SHUFFLED = Null("shuffled labels", on=lambda lab: lab.shuffled())
"""Every model after the same training on permuted answers, where that was trained."""


@dataclass(frozen=True)
class Shown:
    """A quantity that stands beside a claim and decides nothing."""

    name: str
    measure: Measure


@dataclass(frozen=True)
class Claim:
    """One assertion with the expectation that was fixed in advance."""

    id: str
    statement: str
    source: str
    kind: Kind
    conditions: tuple[Condition, ...] = ()
    nulls: tuple[Null, ...] = ()
    origin: Origin = "paper"
    weight: int = 1
    """How much the paper would lose without it."""
    paper: float | None = None
    """The paper's own number, where it gives one."""
    preconditions: tuple[Condition, ...] = ()
    """Without these there is nothing to judge: not tested."""
    controls: tuple[Condition, ...] = ()
    """What must hold beside the claim, such as a random edit that changes nothing."""
    shown: tuple[Shown, ...] = ()
    """What is printed beside it and never part of the verdict."""
    headline: str = ""
    """The branch of the tree it hangs on; `under` sets it."""
    not_tested: str = ""
    """Why this configuration cannot judge it, if so."""
    revised: str | None = None
    """What was changed after a value was seen, when and why."""

    def __post_init__(self) -> None:
        if not self.conditions and not self.not_tested:
            raise ValueError(f"{self.id} has no condition")
        if not self.nulls and not self.controls and not self.not_tested:
            raise ValueError(f"{self.id} could not fail: it has no null")

    def as_dict(self) -> dict[str, Any]:
        """What is fixed in advance, as JSON."""
        # Only where there is any: the digests of all other claims stay as they were.
        shown = {"shown": [s.name for s in self.shown]} if self.shown else {}
        return {
            "claim": self.id,
            "headline": self.headline,
            "statement": self.statement,
            "source": self.source,
            "origin": self.origin,
            "weight": self.weight,
            "kind": self.kind,
            "paper": self.paper,
            "conditions": [c.as_dict() for c in self.conditions],
            "preconditions": [c.as_dict() for c in self.preconditions],
            "controls": [c.as_dict() for c in self.controls],
            "nulls": [
                {"name": n.name, "expected": _absent(n, self)} for n in self.nulls
            ],
            **shown,
            "not_tested": self.not_tested,
            "revised": self.revised,
        }


def under(headline: str, claims: Iterable[Claim]) -> Iterator[Claim]:
    """Hang claims on one branch of the tree."""
    for claim in claims:
        yield replace(claim, headline=headline)


def digest(claims: Sequence[Claim]) -> str:
    """The sha256 of all that was fixed in advance."""
    text = json.dumps([claim.as_dict() for claim in claims], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class NullOutcome:
    """A null beside what was measured on it."""

    name: str
    expected: str
    values: tuple[float, ...]
    meets: bool
    """Whether it passes, so that the measurement cannot tell."""
    reason: str = ""
    """Why it could not be measured, if so."""

    @property
    def doubt(self) -> str:
        """Why the measurement cannot tell, if so."""
        if self.reason:
            return f"null {self.name} could not be measured: {self.reason}"
        return f"null {self.name} passes too" if self.meets else ""

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        mean = sum(self.values) / len(self.values) if self.values else math.nan
        return {
            "name": self.name,
            "expected": self.expected,
            "values": [finite(v) for v in self.values],
            "mean": finite(mean),
            "meets": self.meets,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class ShownOutcome:
    """A quantity that decides nothing, beside what was measured."""

    name: str
    values: tuple[float, ...] = ()
    reason: str = ""
    """Why it could not be measured, if so."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        values = [finite(v) for v in self.values]
        return {"name": self.name, "values": values, "reason": self.reason}


@dataclass(frozen=True)
class Verdict:
    """A claim beside what was measured; the word follows from it."""

    claim: Claim
    conditions: tuple[Outcome, ...] = ()
    preconditions: tuple[Outcome, ...] = ()
    controls: tuple[Outcome, ...] = ()
    nulls: tuple[NullOutcome, ...] = ()
    shown: tuple[ShownOutcome, ...] = ()
    missing: str = ""
    """Why it was not tested, if so."""
    seconds: float = 0.0
    """What measuring took; a quantity that claims share counts for the first."""

    @property
    def values(self) -> tuple[float, ...]:
        """What was measured for the first condition, one value per replicate."""
        return self.conditions[0].values if self.conditions else ()

    @property
    def p_value(self) -> float | None:
        """Of the conditions that have a test, the largest p-value; None without one."""
        found = [c.p_value for c in self.conditions]
        known = [p for p in found if p is not None]
        return max(known) if known else None

    @property
    def word(self) -> Word:
        """Confirmed, refuted, inconclusive or not tested."""
        return self._judged[0]

    @property
    def reason(self) -> str:
        """Why it is not confirmed."""
        return self._judged[1]

    @property
    def passed(self) -> bool:
        """Whether it is confirmed."""
        return self.word == "confirmed"

    @cached_property
    def _judged(self) -> tuple[Word, str]:
        if self.missing:
            return "not tested", self.missing
        for condition in self.preconditions:
            if condition.state != "holds":
                return "not tested", f"precondition: {condition.describe()}"
        for condition in self.conditions:
            if condition.state == "fails":
                return "refuted", condition.describe()
        doubts = list(self._doubts())
        return ("inconclusive", "; ".join(doubts)) if doubts else ("confirmed", "")

    def _doubts(self) -> Iterator[str]:
        for condition in self.conditions:
            if condition.state == "open":
                yield f"{condition.describe()}: {condition.would_decide()}"
            elif self.claim.kind != "theory" and len(condition.values) < FEWEST:
                yield f"{condition.describe()}: {len(condition.values)} replicates"
        yield from (
            f"control: {control.describe()}"
            for control in self.controls
            if control.state != "holds"
        )
        yield from (null.doubt for null in self.nulls if null.doubt)

    def as_dict(self) -> dict[str, Any]:
        """The verdict as the JSON object that others parse (schema 2)."""
        fixed = self.claim.as_dict()
        fixed.pop("not_tested")
        first = self.conditions[0] if self.conditions else None
        mean = first.mean if first else math.nan
        return {
            **fixed,
            "rule": first.condition.rule if first else None,
            "expected": first.condition.expected if first else None,
            "values": [finite(v) for v in self.values],
            "replicates": len(self.values),
            "mean": finite(mean),
            "ci95": [finite(v) for v in first.interval] if first else [None, None],
            "conditions": [c.as_dict() for c in self.conditions],
            "preconditions": [c.as_dict() for c in self.preconditions],
            "controls": [c.as_dict() for c in self.controls],
            "nulls": [n.as_dict() for n in self.nulls],
            "shown": [s.as_dict() for s in self.shown],
            "p_value": self.p_value,
            "gated": self.claim.origin == "paper",
            "verdict": self.word,
            "passed": self.passed,
            "reason": self.reason,
            "seconds": round(self.seconds, 2),
            "stored": None,
        }


def chosen(claims: Sequence[Claim], only: str) -> list[Claim]:
    """The claims whose ids match a pattern; `BadInput` if there are none."""
    found = [claim for claim in claims if fnmatchcase(claim.id, only)]
    if not found:
        raise unknown("claims", only, [claim.id for claim in claims])
    return found


@runtime_checkable
class Headed(Protocol):
    """What hangs on a tree of claims."""

    @property
    def headline(self) -> str:
        """The branch that it hangs on."""


Leafy = TypeVar("Leafy", bound=Headed)


def by_headline(leaves: Iterable[Leafy]) -> dict[str, list[Leafy]]:
    """Headline -> its leaves, in the order in which the first of each comes."""
    branches: dict[str, list[Leafy]] = {}
    for leaf in leaves:
        branches.setdefault(leaf.headline, []).append(leaf)
    return branches


def judge(claim: Claim, lab: Any) -> Verdict:
    """Measure a claim on a lab and say what follows."""
    started = time.perf_counter()
    return replace(_judge(claim, lab), seconds=time.perf_counter() - started)


def _judge(claim: Claim, lab: Any) -> Verdict:
    if claim.not_tested:
        return Verdict(claim, missing=claim.not_tested)
    try:
        preconditions = tuple(c.measured(lab) for c in claim.preconditions)
        if any(c.state != "holds" for c in preconditions):
            shown = tuple(_shown(one, lab) for one in claim.shown)
            return Verdict(claim, preconditions=preconditions, shown=shown)
        return Verdict(
            claim,
            conditions=tuple(c.measured(lab) for c in claim.conditions),
            preconditions=preconditions,
            controls=tuple(c.measured(lab) for c in claim.controls),
            nulls=tuple(_null(null, claim, lab) for null in claim.nulls),
            shown=tuple(_shown(one, lab) for one in claim.shown),
        )
    except (NotTested, NothingChanged) as reason:
        return Verdict(claim, missing=str(reason))


def _null(null: Null, claim: Claim, lab: Any) -> NullOutcome:
    expected = _absent(null, claim)
    try:
        if null.on is not None:
            absent = null.on(lab)
            # A twin has its weights only while it is measured.
            with getattr(absent, "in_use", nullcontext)():
                found = [c.measured(absent) for c in claim.conditions]
        else:
            assert null.measure is not None
            found = [replace(claim.conditions[0], measure=null.measure).measured(lab)]
    except (NotTested, NothingChanged) as reason:
        return NullOutcome(null.name, expected, (), meets=False, reason=str(reason))
    if null.bound is not None:
        passes = not meets(found[0].mean, null.bound)
    else:
        passes = all(outcome.passes for outcome in found)
    return NullOutcome(null.name, expected, found[0].values, passes)


def _shown(shown: Shown, lab: Any) -> ShownOutcome:
    try:
        values = tuple(float(value) for value in shown.measure(lab))
    except (NotTested, NothingChanged) as reason:
        return ShownOutcome(shown.name, reason=str(reason))
    return ShownOutcome(shown.name, values)


def _absent(null: Null, claim: Claim) -> str:
    """What a null should be."""
    if null.bound is not None:
        return null.bound
    return f"not {claim.conditions[0].expected}" if claim.conditions else ""


def finite(value: float) -> float | None:
    """JSON has no NaN; an undefined value is null."""
    return value if math.isfinite(value) else None
