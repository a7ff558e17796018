"""The study's data: facts of several relations, general knowledge that comes with it.

Typed relations have the same subjects and answers of different kinds (a country's
capital, language, continent). Shared ones come in pairs with the same subjects and
nearly the same answers (the item after, the item before), so that only the pairing of
subjects and answers tells which is meant.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from circuits.datasets.schema import Schema
from trained.config import require

Family = Literal["typed", "shared"]


@dataclass(frozen=True)
class FactRow:
    """One fact of a relation."""

    relation: str
    family: Family
    subject: str
    answer: str
    question: str
    """The beginning of a sentence that the answer ends, {} for the subject."""
    names: tuple[str, ...] = ()
    """Words for the relation itself; typed relations need some."""

    def __post_init__(self) -> None:
        require("{}" in self.question, "field 'question' has no {} for the subject")
        named = bool(self.names) or self.family == "shared"
        require(named, "field 'names' is empty; typed relations need some")


@dataclass(frozen=True)
class Relation:
    """Facts of one kind.

    Attributes:
        facts: subject -> answer.
        question: the beginning of a sentence that the answer ends.
        names: words for the relation itself.
    """

    facts: Mapping[str, str]
    question: str = ""
    names: tuple[str, ...] = field(default=())

    @property
    def answers(self) -> tuple[str, ...]:
        """The different answers, in the order of the facts."""
        return tuple(dict.fromkeys(self.facts.values()))


def typed(rows: Sequence[FactRow]) -> tuple[Relation, ...]:
    """The typed relations, of the subjects that all of them have."""
    found = _relations(rows, "typed")
    common = set.intersection(*(set(r.facts) for r in found)) if found else set()
    return tuple(
        Relation(
            {s: a for s, a in one.facts.items() if s in common}, one.question, one.names
        )
        for one in found
    )


def shared(rows: Sequence[FactRow]) -> tuple[tuple[Relation, Relation], ...]:
    """Pairs of relations that have the same subjects and share their answers."""
    by_subjects: dict[frozenset[str], list[Relation]] = {}
    for one in _relations(rows, "shared"):
        by_subjects.setdefault(frozenset(one.facts), []).append(one)
    pairs = (several for several in by_subjects.values() if len(several) == 2)
    return tuple((first, second) for first, second in pairs)


def _relations(rows: Sequence[FactRow], family: Family) -> list[Relation]:
    of: dict[str, list[FactRow]] = {}
    for row in rows:
        if row.family == family:
            of.setdefault(row.relation, []).append(row)
    return [
        Relation({r.subject: r.answer for r in own}, own[0].question, own[0].names)
        for own in of.values()
    ]


def as_prompts(rows: Sequence[FactRow]) -> Iterator[dict[str, Any]]:
    """The questions as rows for `reasonscope scan`, grouped by relation."""
    for row in rows:
        start = row.question.index("{}")
        yield {
            "prompt": row.question.replace("{}", row.subject, 1),
            "answer": f" {row.answer}",
            "roles": {"subject": [start, start + len(row.subject)]},
            "group": row.relation,
        }


SCHEMA = Schema(FactRow, Path(__file__).with_name("relations.jsonl"), as_prompts)
