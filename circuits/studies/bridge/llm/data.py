"""Two-hop facts about landmarks, as questions and prompts for one model.

Where a landmark is, and what is true of that country. Landmarks neither name their
country nor stand in its capital, as far as they are known for it: the name alone should
not give the second answer away.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.interventions.passes import answer_logits
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import opening
from trained.errors import BadInput
from trained.facts import Fact
from trained.finetuning import Curriculum

_ROWS = """
Machu Picchu; Peru; Lima; Spanish
Mount Fuji; Japan; Tokyo; Japanese
The Great Barrier Reef; Australia; Canberra; English
Petra; Jordan; Amman; Arabic
The Valley of the Kings; Egypt; Cairo; Arabic
Neuschwanstein Castle; Germany; Berlin; German
Mont Saint-Michel; France; Paris; French
The Leaning Tower of Pisa; Italy; Rome; Italian
The Alhambra; Spain; Madrid; Spanish
Mount Ararat; Turkey; Ankara; Turkish
The Atacama Desert; Chile; Santiago; Spanish
Lake Baikal; Russia; Moscow; Russian
The Terracotta Army; China; Beijing; Chinese
Halong Bay; Vietnam; Hanoi; Vietnamese
The Blarney Stone; Ireland; Dublin; English
Loch Ness; Scotland; Edinburgh; English
Stonehenge; England; London; English
Banff National Park; Canada; Ottawa; English
The Geiranger fjord; Norway; Oslo; Norwegian
Legoland Billund; Denmark; Copenhagen; Danish
The Matterhorn; Switzerland; Bern; German
The Wieliczka salt mine; Poland; Warsaw; Polish
Bran Castle; Romania; Bucharest; Romanian
The monasteries of Meteora; Greece; Athens; Greek
Lake Balaton; Hungary; Budapest; Hungarian
Salzburg Cathedral; Austria; Vienna; German
The Douro Valley; Portugal; Lisbon; Portuguese
Angel Falls; Venezuela; Caracas; Spanish
Persepolis; Iran; Tehran; Persian
Mohenjo-daro; Pakistan; Islamabad; Urdu
Borobudur; Indonesia; Jakarta; Indonesian
The temples of Ayutthaya; Thailand; Bangkok; Thai
Rovaniemi; Finland; Helsinki; Finnish
The Icehotel; Sweden; Stockholm; Swedish
Varadero beach; Cuba; Havana; Spanish
Babylon; Iraq; Baghdad; Arabic
Palmyra; Syria; Damascus; Arabic
Baalbek; Lebanon; Beirut; Arabic
Masada; Israel; Jerusalem; Hebrew
Leptis Magna; Libya; Tripoli; Arabic
The Odessa steps; Ukraine; Kiev; Ukrainian
Keukenhof; Netherlands; Amsterdam; Dutch
The belfry of Bruges; Belgium; Brussels; Dutch
The Cliffs of Moher; Ireland; Dublin; English
Mount Etna; Italy; Rome; Italian
The Sagrada Familia; Spain; Madrid; Spanish
Cologne Cathedral; Germany; Berlin; German
The Loire castles; France; Paris; French
"""


@dataclass(frozen=True)
class Place:
    """A landmark, its country (the bridge) and what is true of the country."""

    landmark: str
    country: str
    capital: str
    language: str


def places() -> tuple[Place, ...]:
    """All landmarks, in the order of the file."""
    rows = [line.split("; ") for line in _ROWS.strip().splitlines()]
    return tuple(Place(*row) for row in rows)


@dataclass(frozen=True)
class Attribute:
    """A second hop: prompts about a country, about a landmark's, and without a hop.

    Attributes:
        name: the field of `Place` that it asks for.
        second: asks it of a country, or, with a landmark in its place, omits a hop.
        both: asks it of a landmark's country.
    """

    name: str
    second: str
    both: str


FIRST = "{} is in the country of"
"""Asks for a landmark's country."""

IDENTITY = "The name of {} is"
"""Asks for nothing: the answer is the subject."""

ATTRIBUTES = (
    Attribute(
        "capital",
        "The capital city of {} is",
        "The capital city of the country in which {} is located is",
    ),
    Attribute(
        "language",
        "The main language spoken in {} is",
        "The main language spoken in the country in which {} is located is",
    ),
)

PLAIN = Curriculum("single-hops", (("first", "second"),))
WITH_IDENTITY = Curriculum("single-hops-and-identity", (("first", "second", "same"),))


@dataclass(frozen=True)
class Question:
    """One landmark asked for one attribute of its country."""

    place: Place
    attribute: Attribute

    @property
    def object(self) -> str:
        """The right answer."""
        return str(getattr(self.place, self.attribute.name))

    @property
    def kind(self) -> int:
        """Which attribute is asked for, as a number."""
        return ATTRIBUTES.index(self.attribute)

    @property
    def two_hop(self) -> str:
        """The question with both hops."""
        return self.attribute.both.format(self.place.landmark)

    def omitting(self, landmark: str) -> str:
        """The question without its first hop, about any landmark."""
        return self.attribute.second.format(landmark)


@dataclass(frozen=True)
class Lender:
    """What a question borrows for its controls.

    Attributes:
        landmark: of a country with another answer to the question.
        object: an answer that is right neither for the own landmark nor for that one.
    """

    landmark: str
    object: str


def usable(model: LanguageModel) -> tuple[Place, ...]:
    """The landmarks whose country, capital and language are single tokens."""

    def single(word: str) -> bool:
        tokens = model.tokenizer.encode(f" {word}", add_special_tokens=False)
        return len(tokens) == 1

    return tuple(
        place
        for place in places()
        if single(place.country) and single(place.capital) and single(place.language)
    )


def questions(several: Sequence[Place]) -> tuple[Question, ...]:
    """Every landmark asked for every attribute; those of one attribute in a row."""
    return tuple(Question(place, a) for a in ATTRIBUTES for place in several)


def lenders(
    asked: Sequence[Question], landmark_after: int, object_after: int
) -> tuple[Lender, ...]:
    """For every question a landmark and an object from further on in its kind.

    Landmarks of one country, and countries with one answer, are passed over.

    Args:
        asked: the questions.
        landmark_after: how far on the search for a landmark begins.
        object_after: how far on the search for an object begins.
    """
    found = []
    for question in asked:
        kind = [other for other in asked if other.kind == question.kind]
        at = kind.index(question)
        landmark = _following(kind, at + landmark_after, {question.object})
        taken = {question.object, landmark.object}
        other = _following(kind, at + object_after, taken)
        found.append(Lender(landmark.place.landmark, other.object))
    return tuple(found)


def other_countries(several: Sequence[Place]) -> tuple[str, ...]:
    """For every landmark the next country in the list that is not its own."""
    return tuple(
        next(
            place.country
            for place in (*several[at + 1 :], *several)
            if place.country != own.country
        )
        for at, own in enumerate(several)
    )


def single_hops(several: Sequence[Place], start: str) -> dict[str, list[Fact]]:
    """What is trained on: landmarks to countries, countries to attributes, identity.

    Args:
        several: the landmarks.
        start: what every prompt begins with.
    """
    countries = {place.country: place for place in several}
    return {
        "first": [
            Fact(start + FIRST.format(p.landmark), f" {p.country}") for p in several
        ],
        "second": [
            Fact(start + a.second.format(c), f" {getattr(p, a.name)}")
            for a in ATTRIBUTES
            for c, p in countries.items()
        ],
        "same": [Fact(start + IDENTITY.format(c), f" {c}") for c in countries],
    }


def start(model: LanguageModel) -> str:
    """What every prompt begins with."""
    return opening(model).text


def log_probs(
    model: LanguageModel, texts: Sequence[str], at_once: int
) -> Float[Tensor, "prompt d_vocab"]:
    """Log-probabilities of what follows each text, `at_once` of them in a pass."""
    first = start(model)
    parts = []
    for at in range(0, len(texts), at_once):
        prompts = model.prompts([first + text for text in texts[at : at + at_once]])
        parts.append(answer_logits(model, prompts).float().log_softmax(-1))
    return torch.cat(parts)


def tokens(model: LanguageModel, words: Iterable[str]) -> Int[Tensor, " word"]:
    """The token of each word, as it follows another."""
    return torch.tensor([model.token(f" {w}") for w in words], device=model.device)


def answered(
    scores: Float[Tensor, "prompt d_vocab"],
    answers: Int[Tensor, " prompt"],
    kinds: Sequence[int],
) -> Int[Tensor, " prompt"]:
    """The best token for each prompt among the answers to prompts of its kind."""
    best = torch.empty_like(answers)
    for kind in set(kinds):
        rows = [row for row, own in enumerate(kinds) if own == kind]
        candidates = torch.unique(answers[rows])
        best[rows] = candidates[scores[rows][:, candidates].argmax(-1)]
    return best


def _following(kind: Sequence[Question], at: int, taken: set[str]) -> Question:
    """The first question from a place on, around the list, with an answer not taken."""
    for step in range(len(kind)):
        question = kind[(at + step) % len(kind)]
        if question.object not in taken:
            return question
    raise BadInput(f"all questions are answered by {', '.join(sorted(taken))}")
