"""LEGO sentences: a chain of predicates, then its answers, in clauses of five slots.

A predicate x = g(x') is the clause (x, g, x', blank, blank), an answer x = y is
(blank, blank, blank, x, y). A sentence of length L has predicates 1..L, clause l being
x_l = g_l(x_{l-1}), then answers 0..L with y_l = g_l(y_{l-1}). The model reads all
predicates and answers 0..l and predicts answer l + 1. Token ids: variables, then
actions, then values, the blank last.

Example with C6, 4 variables, x = (2, 0, 3), g = (4, 5), y_0 = 3, so y = (3, 1, 0):

    predicates (0, 8, 2, 16, 16) (3, 9, 0, 16, 16)
    answers    (16, 16, 16, 2, 13) (16, 16, 16, 0, 11) (16, 16, 16, 3, 10)

The query is answer 1, (.., 0, 11): what it needs is predicate 2, whose third slot is
the same variable 0, and itself; the clause to predict is (.., 3, 10).

A clause is one position. In a `Batch` it is one number, whose digits are its slots
(`Vocabulary.packed`); models take it apart again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from trained.config import require
from trained.task import Batch

from .action import Action

N_SLOTS = 5

Order = Literal["in order", "permuted"]

Tokens = Int[Tensor, "*batch clause"]
"""Clauses as numbers."""
Clauses = Int[Tensor, "*batch clause 5"]
"""Clauses slot by slot."""


@dataclass(frozen=True)
class Vocabulary:
    """Token ids: variables 0.., then actions, then values, then the blank."""

    n_variables: int
    n_actions: int
    n_values: int

    def __post_init__(self) -> None:
        fits = self.size**N_SLOTS < 2**63
        require(fits, f"{self.size} tokens are too many to write a clause as a number")

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

    def packed(self, clauses: Clauses) -> Tokens:
        """Every clause as one number, its slots the digits to base d."""
        return (clauses * self._digits(clauses)).sum(-1)

    def slots(self, tokens: Tokens) -> Clauses:
        """The slots of every clause.

        >>> words = Vocabulary(4, 6, 6)
        >>> words.slots(words.packed(torch.tensor([[[0, 8, 2, 16, 16]]]))).tolist()
        [[[0, 8, 2, 16, 16]]]
        """
        return tokens[..., None] // self._digits(tokens) % self.size

    def _digits(self, like: Tensor) -> Int[Tensor, " slot"]:
        return self.size ** torch.arange(N_SLOTS, device=like.device)


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

    def batch(self, vocabulary: Vocabulary) -> Batch:
        """What the model reads, with the last value as target.

        Roles, one position per step l = 0 .. L - 1, which is the query's number too:
        `predicate`, clause l + 1 wherever it is written, and `answer`, clause l.
        """
        last = self.values[..., -1] + vocabulary.first_value
        return Batch(self.tokens(vocabulary), last, roles=self.roles())

    def roles(self) -> dict[str, Int[Tensor, "*seed batch step"]]:
        """Where the two clauses that each query needs stand among the 2L keys."""
        answers = torch.arange(self.length, device=self.places.device) + self.length
        return {"predicate": self.places, "answer": answers.expand_as(self.places)}

    def predicates(self, vocabulary: Vocabulary) -> Clauses:
        """The predicate clauses, where they are written."""
        x, blank = self.variables, torch.full_like(self.actions, vocabulary.blank)
        action = self.actions + vocabulary.first_action
        clauses = torch.stack([x[..., 1:], action, x[..., :-1], blank, blank], dim=-1)
        written = self.places.argsort(-1)[..., None].expand(clauses.shape)
        return clauses.gather(-2, written)

    def answers(self, vocabulary: Vocabulary) -> Clauses:
        """The answer clauses 0..L."""
        blank = torch.full_like(self.values, vocabulary.blank)
        value = self.values + vocabulary.first_value
        return torch.stack([blank, blank, blank, self.variables, value], dim=-1)

    def tokens(self, vocabulary: Vocabulary) -> Tokens:
        """What the model reads: all predicates and answers 0..L-1, 2L clauses."""
        answers = self.answers(vocabulary)[..., :-1, :]
        whole = torch.cat([self.predicates(vocabulary), answers], dim=-2)
        return vocabulary.packed(whole)

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


def shuffle(sentences: Sentences, generator: Generator) -> Sentences:
    """The sentences with the values 1..L of one another; y_0 stays.

    What follows y_l is then independent of the actions that are read: nothing is left
    to learn about the value.
    """
    order = torch.randperm(len(sentences.actions), generator=generator)
    first, later = sentences.values[:, :1], sentences.values[order, 1:]
    return sentences._replace(values=torch.cat([first, later], 1))


def _distinct(
    count: int, wanted: int, available: int, generator: Generator
) -> Int[Tensor, "row column"]:
    """Rows of distinct numbers in random order."""
    noise = torch.rand(count, available, generator=generator)
    return noise.topk(wanted, dim=1).indices


class Prediction(NamedTuple):
    """Logits of the next clause's two filled slots, for every query."""

    variable: Float[Tensor, "batch query n_variables"]
    value: Float[Tensor, "batch query n_values"]


Reader = Callable[..., Prediction]
"""(tokens, n_predicates=, queries=) -> the prediction after every query."""

ValuesOf = Callable[[Tensor, int], Tensor]
"""(clauses, how many of them are predicates) -> their values."""


def clause_losses(
    prediction: Prediction, sentences: Sentences
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Cross-entropies of the next variable and the next value, means over steps."""
    return (
        _cross_entropy(prediction.variable, sentences.variables[..., 1:]),
        _cross_entropy(prediction.value, sentences.values[..., 1:]),
    )


def right_steps(
    prediction: Prediction, sentences: Sentences
) -> tuple[Bool[Tensor, "batch step"], Bool[Tensor, "batch step"]]:
    """Which steps' variables and values are right when the true past is given."""
    variable = prediction.variable.argmax(-1) == sentences.variables[..., 1:]
    return variable, prediction.value.argmax(-1) == sentences.values[..., 1:]


def rollout(
    model: Reader,
    sentences: Sentences,
    vocabulary: Vocabulary,
    *,
    steps: int | None = None,
    values: ValuesOf | None = None,
) -> Sentences:
    """The sentences with answers 1..L, or the first few, now the model's own, greedily.

    Every answer, variable and value, is fed back: nothing of the true chain is seen
    but its predicates and answer 0. All answers are right if and only if all steps are
    right when the true past is given, so only what follows an error needs this loop.

    Args:
        model: what reads and predicts.
        sentences: the predicates and answer 0 are taken from here.
        vocabulary: the tokens.
        steps: how many answers; None: all.
        values: for a folded model, what gives the values of clauses; each is then
            computed once and not in every step.
    """
    predicates = sentences.predicates(vocabulary)
    x, y = sentences.variables[..., :1], sentences.values[..., :1]
    known = {"values": values(predicates, sentences.length)} if values else {}
    for _ in range(steps or sentences.length):
        so_far = sentences._replace(variables=x, values=y).answers(vocabulary)
        if values:
            new = values(so_far[..., -1:, :], 0)
            known["values"] = torch.cat([known["values"], new], dim=1)
        prediction = model(
            vocabulary.packed(torch.cat([predicates, so_far], dim=-2)),
            n_predicates=sentences.length,
            queries=slice(-1, None),
            **known,
        )
        x = torch.cat([x, prediction.variable.argmax(-1)], dim=-1)
        y = torch.cat([y, prediction.value.argmax(-1)], dim=-1)
    return sentences._replace(variables=x, values=y)


def verified_rollout(
    model: Reader,
    sentences: Sentences,
    vocabulary: Vocabulary,
    table: Int[Tensor, "g y"],
) -> Sentences:
    """What `rollout` gives, by drafts that one pass each checks at all steps.

    A draft is right up to the first step at which the model, given the draft, answers
    otherwise; that answer is taken and the rest drafted anew. Any draft leads to the
    same answers: the true ones only make few passes likely.
    """
    predicates = sentences.predicates(vocabulary)
    x, y = sentences.variables.clone(), sentences.values.clone()
    rows = torch.arange(len(x), device=x.device)
    # Every pass settles one more step of each row at least.
    for _ in range(sentences.length):
        draft = Sentences(x[rows], sentences.actions[rows], y[rows], x[rows])
        answers = draft.answers(vocabulary)[:, :-1]
        clauses = torch.cat([predicates[rows], answers], dim=-2)
        prediction = model(vocabulary.packed(clauses), n_predicates=sentences.length)
        own_x, own_y = prediction.variable.argmax(-1), prediction.value.argmax(-1)
        wrong = (own_x != draft.variables[:, 1:]) | (own_y != draft.values[:, 1:])
        open_rows = wrong.any(1)
        rows, step = rows[open_rows], wrong[open_rows].int().argmax(1)
        own = torch.arange(len(rows), device=x.device)
        x[rows, step + 1] = own_x[open_rows][own, step]
        y[rows, step + 1] = own_y[open_rows][own, step]
        y[rows] = _redrafted(y[rows], sentences.actions[rows], table, step + 1)
        if not len(rows):
            break
    return sentences._replace(variables=x, values=y)


def _redrafted(
    values: Int[Tensor, "batch state"],
    actions: Int[Tensor, "batch step"],
    table: Int[Tensor, "g y"],
    after: Int[Tensor, " batch"],
) -> Int[Tensor, "batch state"]:
    """The values with those after a state as the actions make them from it."""
    found = values.clone()
    for state in range(1, values.shape[1]):
        image = table[actions[:, state - 1], found[:, state - 1]]
        found[:, state] = torch.where(state > after, image, found[:, state])
    return found


def _cross_entropy(
    logits: Float[Tensor, "batch step n"], target: Tensor
) -> Float[Tensor, ""]:
    logs = logits.log_softmax(-1)
    return -logs.gather(-1, target[..., None]).mean()
