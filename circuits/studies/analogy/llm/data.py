"""Facts about look-alikes as prompts for one model, and as lists to fine-tune on."""

import random
from collections.abc import Sequence

from jaxtyping import Int
from torch import Tensor, tensor

from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Piece, opening, spanned
from trained.analogy.facts import (
    Fact,
    attribution_prompt,
    load_facts,
    similarity_sentence,
)
from trained.facts import Fact as TrainedFact
from trained.finetuning import Curriculum
from trained.task import Batch

JOINT = Curriculum("joint", (("similarity", "attribution"),))
SA = Curriculum("SA", (("similarity",), ("attribution",)))
AS = Curriculum("AS", (("attribution",), ("similarity",)))
PERMUTED = Curriculum("joint-permuted", JOINT.phases)
CURRICULA = {"joint": JOINT, "SA": SA, "AS": AS, "permuted": PERMUTED}

RELATION = attribution_prompt("")
"""What follows the subject: " is classified as"."""


def draw(model: LanguageModel, n_facts: int, source: random.Random) -> list[Fact]:
    """Facts whose categories begin with different tokens.

    So one pass tells which of their categories the model prefers.
    """
    shipped = load_facts()
    chosen: dict[int, Fact] = {}
    for fact in source.sample(shipped, len(shipped)):
        if len(chosen) < n_facts:
            chosen.setdefault(_first_token(model, fact.category), fact)
    return list(chosen.values())


def category_tokens(
    model: LanguageModel, facts: Sequence[Fact]
) -> Int[Tensor, " fact"]:
    """The first token of each fact's category."""
    tokens = [_first_token(model, fact.category) for fact in facts]
    return tensor(tokens, device=model.device)


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
    """What is trained on, and the held-out categories of the second subjects."""
    start = opening(model).text

    def attribution(subject: str, fact: Fact) -> TrainedFact:
        return TrainedFact(start + attribution_prompt(subject), f" {fact.category}")

    def similarity(subject: str, fact: Fact) -> TrainedFact:
        answer = f" {fact.aspect}"
        sentence = similarity_sentence(fact, subject)
        return TrainedFact(start + sentence.removesuffix(answer), answer)

    return {
        "similarity": [
            similarity(subject, fact)
            for fact in facts
            for subject in (fact.subject1, fact.subject2)
        ],
        "attribution": [attribution(fact.subject1, fact) for fact in facts],
        "test": [attribution(fact.subject2, fact) for fact in facts],
    }


def _first_token(model: LanguageModel, category: str) -> int:
    return int(model.tokenizer.encode(f" {category}", add_special_tokens=False)[0])
