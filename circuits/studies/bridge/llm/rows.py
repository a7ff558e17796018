"""Rows of two-hop facts: their schema, cleaned, drawn and split by bridge.

A row has `uid, r1, r2, e1, e2, e3, two_hop, hop1, hop2`: the names of both relations,
subject, bridge and object, and the prompts for two hops (answer e3), hop 1 (answer e2)
and hop 2 (answer e3; it names e2). The prompt that omits the first relation is hop 2
with e1 in place of e2.

The file that comes with the study asks where a landmark is, and for the capital and the
language there. Landmarks neither name their country nor stand in its capital, as far as
they are known for it: the name alone should not give the second answer away.
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuits.datasets.schema import Schema
from trained.config import require
from trained.errors import BadInput


@dataclass(frozen=True)
class Row:
    """One two-hop fact with its prompts."""

    uid: str
    r1: str
    r2: str
    e1: str
    e2: str
    e3: str
    two_hop: str
    hop1: str
    hop2: str

    def __post_init__(self) -> None:
        named = self.e2 in self.hop2
        require(named, f"field 'hop2' does not name e2, which is '{self.e2}'")

    def omitting(self, subject: str) -> str:
        """Hop 2 asked of a subject: the first relation is left out."""
        return self.hop2.replace(self.e2, subject)


def telling(rows: Iterable[Row]) -> list[Row]:
    """The rows whose answer has to be looked up.

    Dropped: rows whose two-hop prompt names the bridge or the object, and rows whose
    subject names the bridge or anything that is asked of it ("University of Madrid" for
    Spain, whose capital is Madrid, gives Spanish away as well).
    """
    every = list(rows)
    known: dict[str, set[str]] = {}
    for row in every:
        known.setdefault(row.e2, {row.e2}).add(row.e3)

    def tells(row: Row) -> bool:
        in_subject = any(_names(row.e1, word) for word in known[row.e2])
        return in_subject or any(_names(row.two_hop, w) for w in (row.e2, row.e3))

    return [row for row in every if not tells(row)]


def _names(text: str, word: str) -> bool:
    return bool(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE))


@dataclass(frozen=True)
class Drawn:
    """What a seed works with.

    Attributes:
        rows: judged, and taught as single hops.
        others: rows of other bridges whose two-hop prompt is taught as well.
    """

    rows: tuple[Row, ...]
    others: tuple[Row, ...]

    def __post_init__(self) -> None:
        shared = {row.e2 for row in self.rows} & {row.e2 for row in self.others}
        assert not shared, f"bridges on both sides: {shared}"


def draw(
    rows: Sequence[Row], *, bridges: int, each: int, share: float, seed: int
) -> Drawn:
    """Some bridges with some of their rows, and rows of other bridges.

    Args:
        rows: to draw from.
        bridges: how many are judged.
        each: rows of a bridge, at most.
        share: of the judged rows, so many of other bridges beside them.
        seed: of the draw.
    """
    source = random.Random(seed)
    by_bridge: dict[str, list[Row]] = {}
    for row in rows:
        by_bridge.setdefault(row.e2, []).append(row)
    if len(by_bridge) < bridges:
        raise BadInput(f"bridges={bridges}: the facts have {len(by_bridge)}")
    order = source.sample(sorted(by_bridge), len(by_bridge))
    chosen = [
        row
        for bridge in order[:bridges]
        for row in source.sample(by_bridge[bridge], min(each, len(by_bridge[bridge])))
    ]
    spare = [row for bridge in order[bridges:] for row in by_bridge[bridge]]
    wanted = round(share * len(chosen))
    if wanted > len(spare):
        raise BadInput(f"two_hop_share={share}: {len(spare)} rows of other bridges")
    return Drawn(tuple(chosen), tuple(source.sample(spare, wanted)))


def lenders(rows: Sequence[Row]) -> list[Row]:
    """For every row the next with the same r2, another bridge and another object.

    Its object is e3', its subject e1'. Rows that no other can lend to are an error.
    """
    return [_lender(rows, at) for at in range(len(rows))]


def _lender(rows: Sequence[Row], at: int) -> Row:
    own = rows[at]
    for other in (*rows[at + 1 :], *rows[:at]):
        if other.r2 == own.r2 and other.e2 != own.e2 and other.e3 != own.e3:
            return other
    raise BadInput(f"no drawn row with r2={own.r2} has another object than {own.e3}")


def lendable(rows: Sequence[Row]) -> list[Row]:
    """The rows that some other one can lend to."""
    answers: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        answers.setdefault(row.r2, set()).add((row.e2, row.e3))
    return [
        row
        for row in rows
        if any(e2 != row.e2 and e3 != row.e3 for e2, e3 in answers[row.r2])
    ]


def as_prompts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The two-hop questions as rows for `reasonscope scan`.

    The subject is a role, and questions are grouped by what is asked of the bridge.
    """
    return [
        {
            "prompt": row.two_hop,
            "answer": f" {row.e3}",
            "roles": {"subject": _span(row.two_hop, row.e1)},
            "group": row.r2,
        }
        for row in rows
    ]


def _span(text: str, phrase: str) -> list[int]:
    start = text.find(phrase)
    if start < 0:
        raise BadInput(f"'{text}' does not name its subject '{phrase}'")
    return [start, start + len(phrase)]


SCHEMA = Schema(Row, Path(__file__).with_name("landmarks.jsonl"), as_prompts)
