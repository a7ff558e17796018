"""General knowledge, few-shot prompts of one hidden relation, and what a model knows.

Typed relations: one country has a capital, a language and a continent, told apart by
their kind. Shared: the item after and the item before in a list have the same answers,
so that only the pairing of subjects and answers tells which is meant.

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
from circuits.models.prompts import Piece, opening, spanned
from trained.errors import BadInput
from trained.task import Batch

from .rows import Relation
from .settings import Settings


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
    settings: Settings,
    relations: Sequence[Relation],
    subjects: Sequence[str],
    queries: Sequence[str],
    n_groups: int,
    source: random.Random,
) -> list[Episode]:
    """Groups of prompts with equal subjects, one prompt for every relation.

    Args:
        settings: the number of demonstrations, the separators.
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
        chosen = (*source.sample(others, settings.pairs), query)
        separator = settings.separators[group % len(settings.separators)]
        for index, relation in enumerate(relations):
            answers = tuple(relation.facts[subject] for subject in chosen)
            drawn.append(Episode(index, group, chosen, answers, separator))
    return drawn


def written(model: LanguageModel, several: Sequence[Episode]) -> Batch:
    """Episodes as prompts.

    Roles: subject0, separator0, answer0 and so on, subjects, separators and answers
    for those of all demonstrations, and query.
    """
    texts = [[opening(model), *_pieces(episode)] for episode in several]
    prompts = spanned(model, texts, [f" {e.answers[-1]}" for e in several])
    roles = dict(prompts.roles)
    for name in ("subject", "separator", "answer"):
        parts = [roles[f"{name}{i}"] for i in range(len(several[0].subjects) - 1)]
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
    model: LanguageModel, prompts: Batch, candidates: Int[Tensor, " answer"]
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


@dataclass(frozen=True)
class Exchange:
    """Prompts whose last residual is replaced by that of others.

    Attributes:
        own: index of each prompt.
        donor: index of the prompt that it takes the residual from.
        wanted: the answer to the own query by the other relation.
        candidates: the answers to both queries by all relations.
    """

    own: Int[Tensor, " case"]
    donor: Int[Tensor, " case"]
    wanted: Int[Tensor, " case"]
    candidates: Int[Tensor, "case candidate"]

    def part(self, rows: Int[Tensor, " row"] | slice) -> "Exchange":
        """Some of the cases."""
        return Exchange(
            self.own[rows], self.donor[rows], self.wanted[rows], self.candidates[rows]
        )


def exchange(
    model: LanguageModel,
    several: Sequence[Episode],
    relations: Sequence[Relation],
    *,
    shift: int,
) -> Exchange:
    """Every prompt beside one of another query, `shift` relations further on.

    What is looked for is always the answer by the next relation, so that shift 0 (a
    donor of the same relation) is the control of shift 1. Cases where that answer would
    be the same for the donor's query, or by the own relation, are left out.
    """
    place = {(e.group, e.relation): i for i, e in enumerate(several)}
    n_groups = 1 + max(e.group for e in several)
    cases = []
    for i, episode in enumerate(several):
        donor_group = next(
            group % n_groups
            for group in range(episode.group + 1, episode.group + n_groups)
            if several[place[group % n_groups, 0]].query != episode.query
        )
        donor = place[donor_group, (episode.relation + shift) % len(relations)]
        following = relations[(episode.relation + 1) % len(relations)]
        other = several[donor].query
        wanted = following.facts[episode.query]
        rest = [r.facts[q] for r in relations for q in (episode.query, other)]
        if wanted == following.facts[other] or rest.count(wanted) > 1:
            continue
        tokens = [model.token(f" {answer}") for answer in rest]
        cases.append((i, donor, model.token(f" {wanted}"), tokens))
    own, donors, wanted_tokens, candidates = zip(*cases, strict=True)
    return Exchange(*map(torch.tensor, (own, donors, wanted_tokens, candidates)))
