"""Few-shot prompts of one hidden relation, and what a model knows without them.

Worked example, two demonstrations: subjects (France, Japan, Italy), answers (Paris,
Tokyo, Rome) give "France -> Paris, Japan -> Tokyo, Italy ->" and the target " Rome".
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.interventions.passes import answer_logits
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from circuits.models.spans import Piece, opening, spanned
from trained.errors import BadInput

from .facts import Relation

N_PAIRS = 4
"""Demonstrations; with fewer, a correlation over pairs says nothing."""
SEPARATORS = (" ->", ":")
"""Both are used in turn."""


@dataclass(frozen=True)
class Episode:
    """One few-shot prompt; the last subject is the query.

    Attributes:
        relation: index of the relation among those that are compared.
        group: episodes of one group differ in the relation only.
    """

    relation: int
    group: int
    subjects: tuple[str, ...]
    answers: tuple[str, ...]
    separator: str

    @property
    def query(self) -> str:
        """The subject that is asked for."""
        return self.subjects[-1]

    def swapped(self) -> "Episode":
        """The same with the answers of neighbouring demonstrations exchanged."""
        answers = list(self.answers)
        for i in range(0, len(answers) - 2, 2):
            answers[i], answers[i + 1] = answers[i + 1], answers[i]
        return replace(self, answers=tuple(answers))


def episodes(
    relations: Sequence[Relation],
    subjects: Sequence[str],
    queries: Sequence[str],
    n_groups: int,
    source: random.Random,
) -> list[Episode]:
    """Groups of prompts with equal subjects, one prompt for every relation.

    Args:
        relations: what the subjects have.
        subjects: what demonstrations are drawn from.
        queries: what is asked for, in turn.
        n_groups: how many groups.
        source: draws the demonstrations and their order.
    """
    drawn = []
    for group in range(n_groups):
        query = queries[group % len(queries)]
        others = [subject for subject in subjects if subject != query]
        chosen = (*source.sample(others, N_PAIRS), query)
        separator = SEPARATORS[group % len(SEPARATORS)]
        for index, relation in enumerate(relations):
            answers = tuple(relation.facts[subject] for subject in chosen)
            drawn.append(Episode(index, group, chosen, answers, separator))
    return drawn


def written(model: LanguageModel, several: Sequence[Episode]) -> Prompts:
    """Episodes as prompts.

    Roles: subject0, separator0, answer0 and so on, subjects, separators and answers
    for those of all demonstrations, and query.
    """
    texts = [[opening(model), *_pieces(episode)] for episode in several]
    prompts = spanned(model, texts, [f" {e.answers[-1]}" for e in several])
    roles = dict(prompts.roles)
    for name in ("subject", "separator", "answer"):
        parts = [roles[f"{name}{i}"] for i in range(N_PAIRS)]
        roles[f"{name}s"] = torch.cat(parts, 1)
    return replace(prompts, roles=roles)


def _pieces(episode: Episode) -> list[Piece]:
    pieces: list[Piece] = []
    for i, subject in enumerate(episode.subjects[:-1]):
        before = " " if i else ""
        pieces += [
            Piece(f"{before}{subject}", f"subject{i}"),
            Piece(episode.separator, f"separator{i}"),
            Piece(f" {episode.answers[i]}", f"answer{i}"),
            Piece(","),
        ]
    return [*pieces, Piece(f" {episode.query}", "query"), Piece(episode.separator)]


def single_tokens(
    model: LanguageModel, relations: Sequence[Relation]
) -> tuple[Relation, ...]:
    """The relations, without the subjects that have an answer of several tokens."""
    kept = [
        subject
        for subject in relations[0].facts
        if all(_is_single(model, relation.facts[subject]) for relation in relations)
    ]
    return tuple(
        replace(relation, facts={subject: relation.facts[subject] for subject in kept})
        for relation in relations
    )


def answer_tokens(model: LanguageModel, relation: Relation) -> Int[Tensor, " answer"]:
    """The tokens of a relation's answers."""
    tokens = [model.token(f" {answer}") for answer in relation.answers]
    return torch.tensor(tokens, device=model.device)


def name_tokens(model: LanguageModel, relation: Relation) -> Int[Tensor, " name"]:
    """The tokens of a relation's names, of those that are one token."""
    single = [name for name in relation.names if _is_single(model, name)]
    if not single:
        raise BadInput(f"none of {relation.names} is one token of {model.name}")
    tokens = [model.token(f" {name}") for name in single]
    return torch.tensor(tokens, device=model.device)


def _is_single(model: LanguageModel, word: str) -> bool:
    return len(model.tokenizer.encode(f" {word}", add_special_tokens=False)) == 1


def known(model: LanguageModel, relations: Sequence[Relation]) -> list[str]:
    """Subjects that the model answers right in every relation, asked plainly.

    Right: the answer is the most likely one among all answers of the relation.
    """
    right: set[str] = set(relations[0].facts)
    for relation in relations:
        subjects = list(relation.facts)
        texts = [
            [opening(model), Piece(relation.question.format(subject))]
            for subject in subjects
        ]
        prompts = spanned(model, texts, [f" {relation.facts[s]}" for s in subjects])
        best = best_among(model, prompts, answer_tokens(model, relation))
        hits = (best == prompts.targets).tolist()
        right &= {s for s, hit in zip(subjects, hits, strict=True) if hit}
    return [subject for subject in relations[0].facts if subject in right]


def best_among(
    model: LanguageModel, prompts: Prompts, candidates: Int[Tensor, " answer"]
) -> Int[Tensor, " batch"]:
    """The likeliest next token of some."""
    logits = answer_logits(model, prompts)[:, candidates]
    return candidates[logits.argmax(-1)]


def accuracy(
    model: LanguageModel,
    logits: Float[Tensor, "example d_vocab"],
    several: Sequence[Episode],
    relations: Sequence[Relation],
) -> float:
    """Share of episodes whose right answer beats all other answers of the relations."""
    tokens = torch.cat([answer_tokens(model, relation) for relation in relations])
    candidates = torch.unique(tokens).to(logits.device)
    answers = [model.token(f" {e.answers[-1]}") for e in several]
    best = candidates[logits[:, candidates].argmax(-1)]
    return float((best == torch.tensor(answers, device=best.device)).double().mean())
