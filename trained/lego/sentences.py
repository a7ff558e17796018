"""LEGO sentences: a chain of predicates, then its answers, in clauses of five slots.

A predicate x = g(x') is the clause (x, g, x', blank, blank), an answer x = y is
(blank, blank, blank, x, y). A sentence of length L has predicates 1..L, clause l being
x_l = g_l(x_{l-1}), then answers 0..L with y_l = g_l(y_{l-1}). The model reads all
predicates and answers 0..l and predicts answer l + 1. Token ids: variables, then
actions, then values, the blank last.

Example with C6, 4 variables, x = (2, 0, 3), g = (4, 5), y_0 = 3, so y = (3, 1, 0):

    predicates (0, 8, 2, 16, 16) (3, 9, 0, 16, 16)
    answers    (16, 16, 16, 2, 13) (16, 16, 16, 0, 11) (16, 16, 16, 3, 10)

The query is answer 1, (.., 0, 11): its targets are predicate 2, whose third slot is
the same variable 0, and itself; the clause to predict is (.., 3, 10).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from trained.config import require

from .action import Action

N_SLOTS = 5

Order = Literal["in order", "permuted"]


@dataclass(frozen=True)
class Vocabulary:
    """Token ids: variables 0.., then actions, then values, then the blank."""

    n_variables: int
    n_actions: int
    n_values: int

    @classmethod
    def of(cls, action: Action, n_variables: int) -> "Vocabulary":
        """The vocabulary of an action."""
        return cls(n_variables, action.n_actions, action.n_values)

    @property
    def first_action(self) -> int:
        """The token of action 0."""
        return self.n_variables

    @property
    def first_value(self) -> int:
        """The token of value 0."""
        return self.n_variables + self.n_actions

    @property
    def blank(self) -> int:
        """The token of an empty slot."""
        return self.first_value + self.n_values

    @property
    def size(self) -> int:
        """All tokens [d]."""
        return self.blank + 1


class Sentences(NamedTuple):
    """Sentences of one length; indices count variables, actions, values from 0.

    A NamedTuple of tensors so that `torch.func.vmap` sees through it.
    """

    variables: Int[Tensor, "*seed batch state"]
    """x_0 .. x_L."""
    actions: Int[Tensor, "*seed batch step"]
    """g_1 .. g_L."""
    values: Int[Tensor, "*seed batch state"]
    """y_0 .. y_L."""
    places: Int[Tensor, "*seed batch step"]
    """At which position predicate l + 1 is written; 0, 1, .. if in order."""

    @property
    def length(self) -> int:
        """The length L of the chain."""
        return self.actions.shape[-1]

    def predicates(self, vocabulary: Vocabulary) -> Int[Tensor, "batch step 5"]:
        """The predicate clauses, where they are written."""
        x, blank = self.variables, torch.full_like(self.actions, vocabulary.blank)
        action = self.actions + vocabulary.first_action
        clauses = torch.stack([x[..., 1:], action, x[..., :-1], blank, blank], dim=-1)
        written = self.places.argsort(-1)[..., None].expand(clauses.shape)
        return clauses.gather(-2, written)

    def answers(self, vocabulary: Vocabulary) -> Int[Tensor, "batch state 5"]:
        """The answer clauses 0..L."""
        blank = torch.full_like(self.values, vocabulary.blank)
        value = self.values + vocabulary.first_value
        return torch.stack([blank, blank, blank, self.variables, value], dim=-1)

    def tokens(self, vocabulary: Vocabulary) -> Int[Tensor, "batch clause 5"]:
        """What the model reads: all predicates and answers 0..L-1, 2L clauses."""
        return torch.cat(
            [self.predicates(vocabulary), self.answers(vocabulary)[..., :-1, :]], dim=-2
        )

    def targets(self) -> Int[Tensor, "batch query 2"]:
        """Key positions of each query's two targets: predicate l + 1, answer l."""
        answers = torch.arange(self.length, device=self.places.device) + self.length
        return torch.stack([self.places, answers.expand_as(self.places)], dim=-1)

    def distractors(self, table: Int[Tensor, "g y"]) -> Bool[Tensor, "batch query key"]:
        """Which of the 2L keys are distractors of each query.

        Predicates other than the target whose action also sends y_l to y_{l+1}.
        """
        value, image = self.values[..., :-1, None], self.values[..., 1:, None]
        same = table[self.actions[..., None, :], value] == image
        same &= ~torch.eye(self.length, dtype=torch.bool, device=same.device)
        written = self.places.argsort(-1)[..., None, :].expand(same.shape)
        same = same.gather(-1, written)
        return torch.cat([same, torch.zeros_like(same)], dim=-1)

    def chunks(self, size: int) -> "Iterator[Sentences]":
        """The sentences in batches of at most `size`, in order."""
        for start in range(0, len(self.actions), size):
            yield Sentences(*(field[start : start + size] for field in self))


def table_of(action: Action) -> Int[Tensor, "g y"]:
    """The action's table [g, y] -> g(y)."""
    return torch.tensor(action.table)


def chain(
    table: Int[Tensor, "g y"],
    actions: Int[Tensor, "batch step"],
    first: Int[Tensor, " batch"],
) -> Int[Tensor, "batch state"]:
    """The values y_0 .. y_L, y_l = g_l(y_{l-1}).

    >>> cyclic = torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    >>> chain(cyclic, torch.tensor([[2, 2]]), torch.tensor([1])).tolist()
    [[1, 0, 2]]
    """
    values = [first]
    for step in range(actions.shape[1]):
        values.append(table[actions[:, step], values[-1]])
    return torch.stack(values, dim=1)


def draw_sentences(
    table: Int[Tensor, "g y"],
    count: int,
    length: int,
    *,
    n_variables: int,
    order: Order = "in order",
    generator: Generator,
) -> Sentences:
    """Sentences of the distribution D^L.

    Variables uniform without replacement, the first value uniform, actions uniform
    with replacement.
    """
    require(
        1 <= length < n_variables,
        f"length {length}: a chain of {n_variables} variables is at most"
        f" {n_variables - 1} long",
    )
    n_actions, n_values = table.shape
    variables = _distinct(count, length + 1, n_variables, generator)
    actions = torch.randint(n_actions, (count, length), generator=generator)
    first = torch.randint(n_values, (count,), generator=generator)
    values = chain(table, actions, first)
    places = torch.arange(length).expand(count, length).contiguous()
    if order == "permuted":
        places = _distinct(count, length, length, generator)
    return Sentences(variables, actions, values, places)


def _distinct(
    count: int, wanted: int, available: int, generator: Generator
) -> Int[Tensor, "row column"]:
    """Rows of distinct numbers in random order."""
    noise = torch.rand(count, available, generator=generator)
    return noise.topk(wanted, dim=1).indices
