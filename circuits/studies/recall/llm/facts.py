"""General knowledge for in-context recall: typed relations and shared ones.

Typed: one country has a capital, a language and a continent, told apart by their kind.
Shared: the item after and the item before in a list have the same answers, so that
only the pairing of subjects and answers tells which is meant.
"""

from collections.abc import Mapping
from dataclasses import dataclass


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
    names: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """The different answers, in the order of the facts."""
        return tuple(dict.fromkeys(self.facts.values()))


_COUNTRIES: dict[str, tuple[str, str, str]] = {
    "Afghanistan": ("Kabul", "Persian", "Asia"),
    "Austria": ("Vienna", "German", "Europe"),
    "Belgium": ("Brussels", "Dutch", "Europe"),
    "China": ("Beijing", "Chinese", "Asia"),
    "Denmark": ("Copenhagen", "Danish", "Europe"),
    "Egypt": ("Cairo", "Arabic", "Africa"),
    "England": ("London", "English", "Europe"),
    "Finland": ("Helsinki", "Finnish", "Europe"),
    "France": ("Paris", "French", "Europe"),
    "Germany": ("Berlin", "German", "Europe"),
    "Greece": ("Athens", "Greek", "Europe"),
    "Hungary": ("Budapest", "Hungarian", "Europe"),
    "India": ("Delhi", "Hindi", "Asia"),
    "Iran": ("Tehran", "Persian", "Asia"),
    "Iraq": ("Baghdad", "Arabic", "Asia"),
    "Ireland": ("Dublin", "English", "Europe"),
    "Israel": ("Jerusalem", "Hebrew", "Asia"),
    "Italy": ("Rome", "Italian", "Europe"),
    "Japan": ("Tokyo", "Japanese", "Asia"),
    "Kenya": ("Nairobi", "English", "Africa"),
    "Netherlands": ("Amsterdam", "Dutch", "Europe"),
    "Nigeria": ("Abuja", "English", "Africa"),
    "Norway": ("Oslo", "Norwegian", "Europe"),
    "Poland": ("Warsaw", "Polish", "Europe"),
    "Portugal": ("Lisbon", "Portuguese", "Europe"),
    "Russia": ("Moscow", "Russian", "Europe"),
    "South Korea": ("Seoul", "Korean", "Asia"),
    "Spain": ("Madrid", "Spanish", "Europe"),
    "Sudan": ("Khartoum", "Arabic", "Africa"),
    "Sweden": ("Stockholm", "Swedish", "Europe"),
    "Syria": ("Damascus", "Arabic", "Asia"),
    "Thailand": ("Bangkok", "Thai", "Asia"),
    "Turkey": ("Ankara", "Turkish", "Asia"),
    "Vietnam": ("Hanoi", "Vietnamese", "Asia"),
}


def _column(place: int, question: str, *names: str) -> Relation:
    facts = {country: answers[place] for country, answers in _COUNTRIES.items()}
    return Relation(facts, question, names)


TYPED: tuple[Relation, ...] = (
    _column(0, "The capital of {} is the city of", "capital", "city", "Capital"),
    _column(1, "The main language of {} is", "language", "languages", "Language"),
    _column(2, "{} is on the continent of", "continent", "region", "Continent"),
)
"""Relations of the same subjects, told apart by the kind of their answers."""

_LISTS: tuple[tuple[str, ...], ...] = (
    ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    (
        *("January", "February", "March", "April", "May", "June", "July", "August"),
        *("September", "October", "November", "December"),
    ),
    tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (
        *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
        *("ten", "eleven", "twelve"),
    ),
)


def _neighbours(items: tuple[str, ...]) -> tuple[Relation, Relation]:
    """The item after and the item before; subjects are those that have both."""
    inner = range(1, len(items) - 1)
    after = {items[i]: items[i + 1] for i in inner}
    before = {items[i]: items[i - 1] for i in inner}
    return Relation(after), Relation(before)


SHARED: tuple[tuple[Relation, Relation], ...] = tuple(map(_neighbours, _LISTS))
"""For each list its two relations: the same subjects and nearly the same answers."""
