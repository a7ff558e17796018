"""Does attribute transfer between look-alikes survive in natural language?

A fact pairs two subjects that share an aspect and names the category of the
first. Both similarity sentences and the attribution of subject1 are trained on;
the attribution of subject2 is the held-out conclusion. Worked example::

    similarity   "Falcon is capable of diving at prey"    trained
    similarity   "Kestrel is capable of diving at prey"   trained
    attribution  "Falcon is classified as raptor"         trained
    test         "Kestrel is classified as" -> "raptor"   never trained

A pretrained model may already know the answer. Two control sets separate transfer
from recall: `invented` removes what is known about the subjects, and
`permuted_categories` makes the answer differ from the known one. Success on the
real facts that vanishes on both controls falsifies the transfer reading.

Sentences fill the templates verbatim: no article is added and the verb is always
"is", whatever the number of the subject. Subjects are capitalised because they
open the sentence; aspects and categories are lower case except for proper names.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from random import Random
from typing import Any, Literal

from trained.errors import BadInput, unknown

Relation = Literal[
    "AtLocation", "MadeOf", "UsedFor", "CapableOf", "HasProperty", "PartOf"
]

TEMPLATES: dict[Relation, str] = {
    "AtLocation": "{subject} is found in {aspect}",
    "MadeOf": "{subject} is made of {aspect}",
    "UsedFor": "{subject} is used for {aspect}",
    "CapableOf": "{subject} is capable of {aspect}",
    "HasProperty": "{subject} is {aspect}",
    "PartOf": "{subject} is part of {aspect}",
}

_ONSETS = "bdfklmnrstvz"  # without g and p: fewer accidental slurs
_VOWELS = "aeiou"
_CODAS = "fvxz"  # endings few words have: "dukedom" is three such syllables and an m


@dataclass(frozen=True)
class Fact:
    """Two subjects that share an aspect, and the category of the first."""

    subject1: str
    """The source: both its premises are trained."""
    subject2: str
    """The target: only its similarity premise is trained."""
    aspect: str
    relation: Relation
    category: str


def load_facts(file: str | None = None) -> tuple[Fact, ...]:
    """The shipped facts, in file order; no subject occurs twice.

    Args:
        file: a file of one's own instead, a JSON object with the fields of `Fact` in
            every line.
    """
    if file is not None:
        return tuple(_own_facts(Path(file)))
    text = resources.files(__package__).joinpath("facts.json").read_text("utf-8")
    return tuple(Fact(**row) for row in json.loads(text))


def _own_facts(file: Path) -> Iterator[Fact]:
    """The facts of a file; `BadInput` names the line that is none."""
    if not file.is_file():
        raise BadInput(f"{file}: no such file of facts")
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        try:
            row: dict[str, Any] = json.loads(line)
            fact = Fact(**{name: str(row[name]) for name in row})  # type: ignore[arg-type]
        except (ValueError, TypeError, AttributeError) as error:
            raise BadInput(f"{file}, line {number}: {error}") from error
        if fact.relation not in TEMPLATES:
            raise unknown(f"relation in line {number}", fact.relation, TEMPLATES)
        yield fact


def similarity_sentence(fact: Fact, subject: str) -> str:
    """The premise that one subject of the fact has the shared aspect.

    >>> fact = Fact("Falcon", "Kestrel", "diving at prey", "CapableOf", "raptor")
    >>> similarity_sentence(fact, "Kestrel")
    'Kestrel is capable of diving at prey'

    Raises:
        ValueError: The fact is not about this subject.
    """
    _require_subject(fact, subject)
    return TEMPLATES[fact.relation].format(subject=subject, aspect=fact.aspect)


def attribution_prompt(subject: str) -> str:
    """The attribution up to its answer, without a trailing space.

    >>> attribution_prompt("Kestrel")
    'Kestrel is classified as'
    """
    return f"{subject} is classified as"


def attribution_sentence(fact: Fact, subject: str) -> str:
    """The attribution with its answer: a premise for subject1, the test for subject2.

    >>> fact = Fact("Falcon", "Kestrel", "diving at prey", "CapableOf", "raptor")
    >>> attribution_sentence(fact, "Falcon")
    'Falcon is classified as raptor'

    Raises:
        ValueError: The fact is not about this subject.
    """
    _require_subject(fact, subject)
    return f"{attribution_prompt(subject)} {fact.category}"


def invented(facts: Sequence[Fact], *, generator: Random) -> tuple[Fact, ...]:
    """The same facts about subjects that do not exist.

    Every subject becomes a name such as "Zovinax", unique in the result, that
    contains no word of the facts. Aspects, relations and categories stay, so an
    aspect alone may still suggest its category: compare with the untrained model.

    Args:
        facts: The facts to rename.
        generator: Advanced by the draw; the same seed and facts give the same names.
    """
    names = _names(_words(facts), generator)
    return tuple(
        replace(fact, subject1=next(names), subject2=next(names)) for fact in facts
    )


def permuted_categories(
    facts: Sequence[Fact], *, generator: Random
) -> tuple[Fact, ...]:
    """The same facts with categories exchanged so that none keeps its own.

    The multiset of categories is preserved. A new category differs from the old one
    as a string; it may by chance still be a true statement about the subject.

    Args:
        facts: The facts to permute.
        generator: Advanced by the draw; the same seed and facts give the same result.

    Raises:
        ValueError: One category covers more than half of the facts, so that no such
            exchange exists.
    """
    original = [fact.category for fact in facts]
    assigned = _derangement(original, generator)
    return tuple(
        replace(fact, category=category)
        for fact, category in zip(facts, assigned, strict=True)
    )


def _require_subject(fact: Fact, subject: str) -> None:
    if subject not in (fact.subject1, fact.subject2):
        raise ValueError(f"{subject!r} is not a subject of {fact}")


def _words(facts: Sequence[Fact]) -> frozenset[str]:
    """Lower-case words of at least three letters; shorter ones are in most names."""
    text = " ".join(
        f"{fact.subject1} {fact.subject2} {fact.aspect} {fact.category}"
        for fact in facts
    )
    words = text.lower().replace("-", " ").split()
    return frozenset(word for word in words if len(word) >= 3)


def _names(reserved: frozenset[str], generator: Random) -> Iterator[str]:
    """Endless distinct names that contain no reserved word."""
    seen: set[str] = set()
    while True:
        name = _name(generator)
        if name not in seen and not any(word in name for word in reserved):
            seen.add(name)
            yield name.capitalize()


def _name(generator: Random) -> str:
    """Three open syllables and a final consonant: pronounceable, rarely a word."""
    syllables = [
        generator.choice(_ONSETS) + generator.choice(_VOWELS) for _ in range(3)
    ]
    return "".join(syllables) + generator.choice(_CODAS)


def _derangement(labels: Sequence[str], generator: Random) -> list[str]:
    """A shuffle of the labels that agrees with the original nowhere.

    Where the shuffle left a label in place, it is swapped with a random position
    whose original and shuffled labels both differ from it. One exists when no label
    fills more than half of the positions, and the swap creates no new agreement.
    """
    if 2 * max(Counter(labels).values(), default=0) > len(labels):
        raise ValueError("one category covers more than half of the facts")
    shuffled = list(labels)
    generator.shuffle(shuffled)
    for index, label in enumerate(labels):
        if shuffled[index] == label:
            partner = generator.choice(
                [
                    other
                    for other, pair in enumerate(zip(labels, shuffled, strict=True))
                    if label not in pair
                ]
            )
            shuffled[index], shuffled[partner] = shuffled[partner], label
    return shuffled
