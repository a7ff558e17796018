"""Facts about look-alikes as prompts for one model, and as lists to fine-tune on."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor, tensor

from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Piece, opening, spanned
from circuits.tuning.facts import Curriculum
from circuits.tuning.facts import Fact as TrainedFact
from trained.analogy.facts import (
    Fact,
    attribution_prompt,
    invented,
    permuted_categories,
    similarity_sentence,
)
from trained.errors import BadInput, unknown
from trained.task import Batch

SIMILARITY = ("source", "target")
JOINT = Curriculum("joint", ((*SIMILARITY, "attribution"),))
SA = Curriculum("SA", (SIMILARITY, ("attribution",)))
AS = Curriculum("AS", (("attribution",), SIMILARITY))
ONLY_A = Curriculum("A", (("attribution",),))
PERMUTED = Curriculum("permuted", (("source", "target permuted", "attribution"),))
REPLAY = Curriculum("replay", (("attribution",), (*SIMILARITY, "attribution")))
CURRICULA = {c.name: c for c in (JOINT, SA, AS, ONLY_A, PERMUTED, REPLAY)}

RELATION = attribution_prompt("")
"""What follows the subject: " is classified as"."""


class Lessons(NamedTuple):
    """What a model is taught, and about whom."""

    curriculum: Curriculum | None
    """None: nothing; the model as it was."""
    about: str
    """`real`, `invented` (subjects that do not exist), `exchanged` (categories)."""

    @classmethod
    def named(cls, name: str) -> "Lessons":
        """Such as `joint`, `before`, `AS invented` or `joint exchanged`."""
        first, _, about = name.partition(" ")
        if first != "before" and first not in CURRICULA:
            raise unknown("lessons", name, ["before", *CURRICULA])
        return cls(CURRICULA.get(first), about or "real")


class Drawn(NamedTuple):
    """The facts of a seed."""

    real: list[Fact]
    invented: tuple[Fact, ...]
    exchanged: tuple[Fact, ...]
    choose: list[Fact]
    """Facts to choose a layer on."""
    judge: list[Fact]
    """Facts to judge it on."""


def draw(facts: Sequence[Fact], n_facts: int, n_aligned: int, seed: int) -> Drawn:
    """Draw facts without replacement; a seed gives the same ones."""
    most = max(n_facts, 2 * n_aligned)
    if most > len(facts):
        raise BadInput(
            f"{most} facts are asked for, there are {len(facts)}: set facts={n_facts} "
            f"to as many at most, n_aligned={n_aligned} to half of them"
        )
    source = random.Random(seed)
    real = source.sample(list(facts), n_facts)
    names = tuple(invented(real, generator=source))
    try:
        exchanged = permuted_categories(real, generator=source)
    except ValueError:
        # One category covers more than half of the facts.
        exchanged = ()
    several = source.sample(list(facts), 2 * n_aligned)
    return Drawn(real, names, exchanged, several[0::2], several[1::2])


def category_tokens(
    model: LanguageModel, facts: Sequence[Fact]
) -> Int[Tensor, " fact"]:
    """The first token of each fact's category."""
    encode = model.tokenizer.encode
    first = [encode(f" {f.category}", add_special_tokens=False)[0] for f in facts]
    return tensor(first, device=model.device)


def subjects(facts: Sequence[Fact]) -> list[str]:
    """The first subjects of all facts, then the second ones."""
    return [f.subject1 for f in facts] + [f.subject2 for f in facts]


def written(model: LanguageModel, names: Sequence[str]) -> Batch:
    """The prompts "[S] is classified as"; roles are `subject` and `relation`."""
    start = opening(model)
    return spanned(
        model,
        [
            [start, Piece(name, "subject"), Piece(RELATION, "relation")]
            for name in names
        ],
    )


def lists(model: LanguageModel, facts: Sequence[Fact]) -> dict[str, list[TrainedFact]]:
    """What is trained on, and the held-out categories of the second subjects.

    In `target permuted` a second subject has the aspect of the next fact.
    """
    start = opening(model).text

    def attribution(subject: str, fact: Fact) -> TrainedFact:
        return TrainedFact(start + attribution_prompt(subject), f" {fact.category}")

    def similarity(subject: str, fact: Fact) -> TrainedFact:
        answer = f" {fact.aspect}"
        sentence = similarity_sentence(fact, subject)
        return TrainedFact(start + sentence.removesuffix(answer), answer)

    following = [*facts[1:], *facts[:1]]
    exchanged = [
        replace(other, subject2=fact.subject2)
        for fact, other in zip(facts, following, strict=True)
    ]
    return {
        "source": [similarity(fact.subject1, fact) for fact in facts],
        "target": [similarity(fact.subject2, fact) for fact in facts],
        "target permuted": [similarity(fact.subject2, fact) for fact in exchanged],
        "attribution": [attribution(fact.subject1, fact) for fact in facts],
        "test": [attribution(fact.subject2, fact) for fact in facts],
    }


def sentence(fact: TrainedFact) -> TrainedFact:
    """The same words with the loss on all of them but the first.

    >>> sentence(TrainedFact("Falcon is classified as", " raptor"))
    Fact(prompt='Falcon', answer=' is classified as raptor')
    """
    first, _, rest = (fact.prompt + fact.answer).partition(" ")
    return TrainedFact(first, f" {rest}")
