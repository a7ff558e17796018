"""In-context recall prompts, their roles and their types.

A prompt shows k (subject, answer) pairs of one hidden relation and a query subject.
Worked example, n=3, k=2, relations in the order of `all_bijections(3)`: subjects are
the tokens 0-2, answers 3-5, relations 6-11, EoS is 12. The relation 0->0, 1->1, 2->2
is token 6, and the prompt (0, 3, 1, 4, 2, 12) has the targets 6, then (with 6
appended) 5.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from trained.task import Batch, positions

from .relations import Table


@dataclass(frozen=True)
class Vocabulary:
    """Token ids: subjects, answers, relations, then the end-of-sequence token."""

    n_subjects: int
    n_relations: int

    @property
    def size(self) -> int:
        """Number of tokens."""
        return 2 * self.n_subjects + self.n_relations + 1

    @property
    def end(self) -> int:
        """The end-of-sequence token."""
        return self.size - 1

    @property
    def answers(self) -> slice:
        """Where the answers are."""
        return slice(self.n_subjects, 2 * self.n_subjects)

    @property
    def relations(self) -> slice:
        """Where the relations are."""
        return slice(2 * self.n_subjects, self.end)

    @classmethod
    def of(cls, table: Table) -> "Vocabulary":
        """The vocabulary of a relation table."""
        return cls(table.shape[1], table.shape[0])


@dataclass(frozen=True)
class Prompts:
    """Prompts before tokenisation: indices of relations and subjects."""

    table: Table
    relation: Int[Tensor, " batch"]
    subjects: Int[Tensor, "batch subject_pos"]
    """k example subjects, then the query subject; distinct within a prompt."""

    @property
    def answers(self) -> Int[Tensor, "batch subject_pos"]:
        """The hidden relation's answers to the subjects."""
        return self.table[self.relation[:, None], self.subjects]

    @property
    def n_examples(self) -> int:
        """In-context examples per prompt."""
        return self.subjects.shape[1] - 1

    def relation_step(self) -> Batch:
        """Step 1: (s1, a1, ..., query, EoS) -> the relation."""
        words = Vocabulary.of(self.table)
        pairs = torch.stack([self.subjects, self.answers + words.n_subjects], dim=-1)
        tokens = pairs.flatten(1)
        tokens[:, -1] = words.end
        targets = words.relations.start + self.relation
        return Batch(tokens, targets, _roles(tokens, self.n_examples))

    def answer_step(self) -> Batch:
        """Step 2: the prompt with its true relation appended -> the answer."""
        first = self.relation_step()
        tokens = torch.cat([first.tokens, first.targets[:, None]], dim=1)
        targets = self.answers[:, -1] + self.table.shape[1]
        return Batch(tokens, targets, _roles(tokens, self.n_examples))

    def steps(self) -> dict[str, Batch]:
        """Both steps, as the loss and the arms want them."""
        return {"relation": self.relation_step(), "answer": self.answer_step()}

    def where(self, chosen: Bool[Tensor, " batch"]) -> "Prompts":
        """Some of the prompts."""
        return Prompts(self.table, self.relation[chosen], self.subjects[chosen])


def draw_prompts(
    table: Table, n_examples: int, count: int, *, generator: torch.Generator
) -> Prompts:
    """Prompts with a uniform relation and distinct uniform subjects."""
    n_relations, n_subjects = table.shape
    relation = torch.randint(n_relations, (count,), generator=generator)
    noise = torch.rand(count, n_subjects, generator=generator)
    return Prompts(table, relation, noise.argsort(1)[:, : n_examples + 1])


def confusing_relations(prompts: Prompts) -> Bool[Tensor, "batch relation"]:
    """Relations that swap the answers of the two examples: r(s1)=a2, r(s2)=a1."""
    images, answers = _images(prompts), prompts.answers
    first = images[:, :, 0] == answers[:, None, 1]
    second = images[:, :, 1] == answers[:, None, 0]
    return first & second


def mismatched_relations(prompts: Prompts) -> Bool[Tensor, "batch relation"]:
    """Relations that match both answers, one of them with the query subject."""
    images, answers = _images(prompts), prompts.answers
    query = images[:, :, 2]
    found = torch.zeros_like(query, dtype=torch.bool)
    for example in (0, 1):
        for answer in (0, 1):
            own = images[:, :, example] == answers[:, None, answer]
            found |= own & (query == answers[:, None, 1 - answer])
    return found


def consistent_relations(prompts: Prompts) -> Bool[Tensor, "batch relation"]:
    """Relations that agree with every example; the true one always does."""
    images, answers = _images(prompts), prompts.answers
    k = prompts.n_examples
    return (images[:, :, :k] == answers[:, None, :k]).all(-1)


def bayes_ceiling(prompts: Prompts) -> float:
    """Best possible accuracy on the relation: one over the consistent relations."""
    return float((1 / consistent_relations(prompts).sum(1)).mean())


def _images(prompts: Prompts) -> Int[Tensor, "batch relation subject_pos"]:
    return prompts.table.T[prompts.subjects].transpose(1, 2)


def _roles(tokens: Tensor, n_examples: int) -> dict[str, Tensor]:
    roles = {
        "subject": positions([2 * i for i in range(n_examples)], tokens),
        "answer": positions([2 * i + 1 for i in range(n_examples)], tokens),
        "query": positions([2 * n_examples], tokens),
        "end": positions([2 * n_examples + 1], tokens),
    }
    if tokens.shape[1] > 2 * n_examples + 2:
        roles["relation"] = positions([2 * n_examples + 2], tokens)
    return roles
