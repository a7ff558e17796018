"""Verdicts as the page shows them: read from their JSON, checked, hung on a tree.

What comes from a file is data of unknown origin: it is either of the shape that
`Confirmation.as_dict` gives, or refused in one line.
"""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from circuits.claims import by_headline
from circuits.conditions import meets
from circuits.confirm import SCHEMA
from trained.errors import BadInput

WORDS = ("confirmed", "refuted", "inconclusive", "not tested")

PASSES = "passes too, so the measurement cannot tell"
"""What is said of a null that does what only the mechanism should."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Reading:
    """One quantity: what was expected of it and what was measured."""

    name: str
    expected: str
    values: tuple[float | None, ...]
    """One per replicate; None where it is undefined."""
    low: float | None = None
    high: float | None = None
    rule: str = ""
    state: str = ""
    """Holds, fails or open; of a null, whether it passes."""

    @property
    def known(self) -> tuple[float, ...]:
        """The values that are numbers."""
        return tuple(v for v in self.values if v is not None)

    @property
    def mean(self) -> float | None:
        """Of what is known, if all is."""
        whole = self.values and len(self.known) == len(self.values)
        return math.fsum(self.known) / len(self.known) if whole else None


@dataclass(frozen=True)
class Stored:
    """What a long run that is stored with the project said of the same claim."""

    verdict: str
    mean: float | None
    preset: str
    n_seeds: int
    reason: str = ""

    @property
    def came_out(self) -> str:
        """Its verdict with the mean, or where it was refuted with what failed."""
        if self.verdict == "refuted" and self.reason:
            return f"{self.verdict}: {self.reason}"
        return self.verdict if self.mean is None else f"{self.verdict}, {self.mean:.3g}"


@dataclass(frozen=True)
class Leaf:
    """One claim beside its verdict."""

    id: str
    headline: str
    statement: str
    source: str
    origin: str
    kind: str
    weight: int
    paper: float | None
    verdict: str
    reason: str
    conditions: tuple[Reading, ...]
    preconditions: tuple[Reading, ...]
    controls: tuple[Reading, ...]
    nulls: tuple[Reading, ...]
    shown: tuple[Reading, ...]
    """What decides nothing; nothing is expected of it."""
    revised: str
    seconds: float | None
    holm: float | None
    stored: Stored | None
    command: str

    @property
    def decisive(self) -> Reading | None:
        """What the verdict rests on: the condition that fails or is open, or the first.

        None where nothing was measured.
        """
        state = {"refuted": "fails", "inconclusive": "open"}.get(self.verdict)
        measured = [reading for reading in self.conditions if reading.values]
        doubted = [reading for reading in measured if reading.state == state]
        return next(iter(doubted or measured), None)


@dataclass(frozen=True)
class Branch:
    """A headline of the paper and the claims that carry it."""

    headline: str
    leaves: tuple[Leaf, ...]

    @property
    def weight(self) -> int:
        """The weights of its leaves."""
        return sum(leaf.weight for leaf in self.leaves)


@dataclass(frozen=True)
class Tally:
    """How claims came out, by number and by weight."""

    counts: dict[str, int]
    weights: dict[str, int]

    @property
    def total(self) -> int:
        """The weight of all."""
        return sum(self.weights.values())

    @property
    def score(self) -> float:
        """The weights confirmed over all weights."""
        return self.weights["confirmed"] / self.total if self.total else 0.0

    @property
    def tested(self) -> float:
        """The weights that were tested over all weights."""
        return 1 - self.weights["not tested"] / self.total if self.total else 0.0


@dataclass(frozen=True)
class Judged:
    """A verdict file: the tree of a paper, and what made the verdicts."""

    study: str
    model: str
    preset: str
    seeds: tuple[int, ...]
    device: str
    seconds: float | None
    command: str
    branches: tuple[Branch, ...]
    """Of the paper's claims; what is ours hangs on `own`."""
    own: tuple[Branch, ...]
    provenance: dict[str, Any]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Every claim, the paper's first."""
        both = (*self.branches, *self.own)
        return tuple(leaf for branch in both for leaf in branch.leaves)


def tally(leaves: Sequence[Leaf]) -> Tally:
    """Count claims by their verdicts."""
    of = {word: [x.weight for x in leaves if x.verdict == word] for word in WORDS}
    return Tally({w: len(v) for w, v in of.items()}, {w: sum(of[w]) for w in WORDS})


def judged(found: Any, name: str, target: str = "") -> Judged:
    """A verdict object, checked.

    Args:
        found: what `Confirmation.as_dict` gives, or was read from a file.
        name: what to call it where it is none.
        target: the run that repeats a row at once, for `reasonscope probe`.
    """
    try:
        return _judged(found, target)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{name} is no verdict file of ours: {error}") from error


def _judged(found: Mapping[str, Any], target: str) -> Judged:
    if found["schema"] != SCHEMA:
        raise ValueError(f"schema {found['schema']}, not {SCHEMA}")
    seeds = tuple(int(seed) for seed in found["seeds"])
    again = str(found.get("command") or _command(found, seeds))
    row = f"reasonscope probe {shlex.quote(target)}" if target else again
    leaves = [_leaf(verdict, row) for verdict in found["verdicts"]]
    made = ("environment", "judged_with", "config")
    hashes = ("claims_sha256", "code_sha256", "claims_changed_since_training")
    return Judged(
        study=str(found["study"]),
        model=str(found.get("model") or ""),
        preset=str(found["preset"]),
        seeds=seeds,
        device=str(found.get("device", "")),
        seconds=_number(found.get("seconds")),
        command=again,
        branches=_tree([x for x in leaves if x.origin == "paper"]),
        own=_tree([x for x in leaves if x.origin != "paper"]),
        provenance={
            **{name: dict(found.get(name) or {}) for name in made},
            "arms": _arms(found.get("arms") or {}),
            **{name: found.get(name) for name in hashes},
        },
    )


def _arms(found: Mapping[str, Any]) -> list[str]:
    """What was trained, each with its seeds and seconds."""
    return [
        f"{name} ({len(arm['seeds'])} seeds, {float(arm['seconds']):.3g} s)"
        if arm is not None
        else f"{name} (not trained)"
        for name, arm in found.items()
    ]


def _command(found: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """What asks for the same again, for files that do not say."""
    words = ["reasonscope", "confirm", str(found["study"])]
    if found.get("model"):
        words += ["--model", str(found["model"])]
    words += ["--preset", str(found["preset"])]
    return shlex.join([*words, "--seeds", f"{','.join(map(str, seeds))},"])


def _tree(leaves: Sequence[Leaf]) -> tuple[Branch, ...]:
    """Leaves by headline, in the order of the paper."""
    groups = by_headline(leaves)
    return tuple(Branch(headline, tuple(group)) for headline, group in groups.items())


def _leaf(verdict: Mapping[str, Any], command: str) -> Leaf:
    if verdict["verdict"] not in WORDS:
        raise ValueError(f"'{verdict['verdict']}' is no verdict")
    stored = verdict.get("stored")
    return Leaf(
        id=str(verdict["claim"]),
        headline=str(verdict["headline"]),
        statement=str(verdict["statement"]),
        source=str(verdict["source"]),
        origin=str(verdict["origin"]),
        kind=str(verdict["kind"]),
        weight=int(verdict["weight"]),
        paper=_number(verdict["paper"]),
        verdict=str(verdict["verdict"]),
        reason=str(verdict["reason"]),
        conditions=_each(_reading, verdict["conditions"]),
        preconditions=_each(_reading, verdict["preconditions"]),
        controls=_each(_reading, verdict["controls"]),
        nulls=_each(_null, verdict["nulls"]),
        shown=_each(_shown, verdict.get("shown", ())),
        revised=str(verdict.get("revised") or ""),
        seconds=_number(verdict.get("seconds")),
        holm=_number(verdict.get("holm")),
        stored=None if stored is None else _stored(stored),
        command=f"{command} --only {shlex.quote(str(verdict['claim']))}",
    )


def _each(make: Callable[[Any], Item], found: Sequence[Any]) -> tuple[Item, ...]:
    return tuple(make(one) for one in found)


def _reading(found: Mapping[str, Any]) -> Reading:
    # A claim that was not tested has conditions without values.
    low, high = found.get("ci95", (None, None))
    meets(0.0, str(found["expected"]))
    return Reading(
        name=str(found["name"]),
        expected=str(found["expected"]),
        values=_each(_number, found.get("values", ())),
        low=_number(low),
        high=_number(high),
        rule=str(found.get("rule", "")),
        state=str(found.get("state", "")),
    )


def _null(found: Mapping[str, Any]) -> Reading:
    passes = PASSES if found.get("meets") else "absent, as it should be"
    values = _each(_number, found.get("values", ()))
    return Reading(
        name=str(found["name"]),
        expected=str(found["expected"]),
        values=values,
        state=str(found.get("reason") or (passes if values else "")),
    )


def _shown(found: Mapping[str, Any]) -> Reading:
    return Reading(
        name=str(found["name"]),
        expected="",
        values=_each(_number, found["values"]),
        state=str(found.get("reason", "")),
    )


def _stored(found: Mapping[str, Any]) -> Stored:
    return Stored(
        verdict=str(found["verdict"]),
        mean=_number(found.get("mean")),
        preset=str(found.get("preset")),
        n_seeds=len(found.get("seeds") or ()),
        reason=str(found.get("reason") or ""),
    )


def _number(value: Any) -> float | None:
    number = None if value is None else float(value)
    return number if number is None or math.isfinite(number) else None
