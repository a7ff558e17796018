"""Strings of a task in three splits whose symbols are disjoint by construction.

Token ids: regular tokens, then the train, validation and test alphabets, then CLS,
which ends every string. The train alphabet is as large as the training set unless a
size is given, so few symbols repeat. Worked example, same/different, n=4, 100 held-out
symbols: train ids 0-3, validation 4-103, test 104-203, CLS 204; trained on
(2, 2, 204) -> 1 and (0, 3, 204) -> -1, tested on (117, 117, 204) -> 1. Section 2 of
"When can transformers reason with abstract symbols?"
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from trained.config import require
from trained.task import Batch, positions

from .tasks import Task
from .template import Template, is_wildcard

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Alphabet:
    """Which token ids stand for what."""

    task: Task
    n_train: int
    """Symbols of the train split."""
    n_held_out: int = 100
    """Symbols of the validation split, and of the test split."""

    def __post_init__(self) -> None:
        least = self.task.n_wildcards
        for size in (self.n_train, self.n_held_out):
            require(
                size >= least,
                f"alphabet of {size} symbols: task {self.task.name} needs {least}",
            )

    @property
    def ids(self) -> dict[Split, range]:
        """The token ids of every split's symbols."""
        sizes = (self.n_train, self.n_held_out, self.n_held_out)
        ends = [len(self.task.regular)]
        for size in sizes:
            ends.append(ends[-1] + size)
        ranges = [range(low, high) for low, high in pairwise(ends)]
        return dict(zip(SPLITS, ranges, strict=True))

    @property
    def cls(self) -> int:
        """The token that ends every string; never an answer."""
        return self.ids["test"].stop

    @property
    def d_vocab(self) -> int:
        """Number of tokens, CLS included."""
        return self.cls + 1


def alphabet(
    task: Task, n: int, *, train_alphabet: int | None = None, n_held_out: int = 100
) -> Alphabet:
    """The alphabets for n training strings: n symbols, or as many as are needed.

    `train_alphabet` is another number of training symbols: data diversity is that
    number over the wildcards of a template (Definition 4.2).
    """
    size = train_alphabet or max(n, task.n_wildcards)
    return Alphabet(task, size, n_held_out)


def sample(
    alphabet: Alphabet,
    split: Split,
    count: int,
    *,
    label_noise: float = 0.0,
    generator: Generator,
) -> Batch:
    """Strings of one split: a uniform template, then symbols without replacement.

    The targets are numbers (real-label tasks), with Gaussian noise of a standard
    deviation on top if there is one, or the tokens to name (symbolic-label tasks).
    Roles: see `roles`.
    """
    task, symbols = alphabet.task, alphabet.ids[split]
    chosen = torch.randint(len(task.templates), (count,), generator=generator)
    drawn = _without_replacement(count, task.n_wildcards, len(symbols), generator)
    regular = torch.arange(len(task.regular)).expand(count, -1)
    pool = torch.cat([drawn + symbols.start, regular], dim=1)
    strings = pool.gather(1, _columns(task)[chosen])
    tokens = torch.cat([strings, torch.full((count, 1), alphabet.cls)], dim=1)
    if task.kind == "real":
        answers = torch.tensor(task.values)[chosen]
        if label_noise:
            answers += label_noise * torch.randn(count, generator=generator)
    else:
        answers = pool.gather(1, _answer_columns(task)[chosen, None])[:, 0]
    return Batch(tokens, answers, roles=roles(task, tokens))


def roles(task: Task, tokens: Int[Tensor, "batch pos"]) -> dict[str, Tensor]:
    """Named positions of a task's strings.

    symbols: all but CLS; first, second: the symbols that same/different compares;
    values: where some template of a symbolic-label task has its answer.
    """
    columns = {"symbols": list(range(task.length)), "first": [0]}
    if task.length >= 2:
        columns["second"] = [1]
    if task.kind == "symbolic":
        columns["values"] = value_places(task)
    return {name: positions(places, tokens) for name, places in columns.items()}


def value_places(task: Task) -> list[int]:
    """The positions that hold the answer of some template.

    >>> from .tasks import task
    >>> value_places(task("recall"))
    [1, 3]
    """
    pairs = [
        (t.symbols, str(label))
        for t, label in zip(task.templates, task.labels, strict=True)
    ]
    return sorted(
        {symbols.index(label) for symbols, label in pairs if label in symbols}
    )


def rows_redrawn(strings: Batch, n_first: int, *, generator: Generator) -> Batch:
    """The strings with their first symbols taken from another string; same answers."""
    order = torch.randperm(len(strings), generator=generator)
    order = order.roll(1)[order.argsort()]  # one cycle: no string keeps its own
    tokens = strings.tokens.clone()
    tokens[:, :n_first] = strings.tokens[order, :n_first]
    return replace(strings, tokens=tokens)


def assert_unseen(alphabet: Alphabet, splits: Iterable[Batch]) -> None:
    """No symbol occurs in two of the splits; regular tokens and CLS may."""
    shared = {*range(len(alphabet.task.regular)), alphabet.cls}
    seen: set[int] = set()
    for strings in splits:
        symbols = set(strings.tokens.flatten().tolist()) - shared
        assert not seen & symbols, f"symbols {seen & symbols} are in two splits"
        seen |= symbols


def _column(task: Task, template: Template, symbol: str) -> int:
    """Where a symbol's token is, in a row of drawn symbols, then regular tokens."""
    if is_wildcard(symbol):
        return template.wildcards.index(symbol)
    return task.n_wildcards + task.regular.index(symbol)


@cache
def _columns(task: Task) -> Int[Tensor, "template pos"]:
    return torch.tensor(
        [[_column(task, t, symbol) for symbol in t.symbols] for t in task.templates]
    )


@cache
def _answer_columns(task: Task) -> Int[Tensor, " template"]:
    pairs = zip(task.templates, task.labels, strict=True)
    return torch.tensor([_column(task, t, str(label)) for t, label in pairs])


def _without_replacement(
    count: int, size: int, total: int, generator: Generator
) -> Int[Tensor, "row wildcard"]:
    """Rows of distinct numbers below `total`, uniform among such rows."""
    drawn = torch.randint(total, (count, size), generator=generator)
    while True:
        ordered = drawn.sort(dim=1).values
        repeats = (ordered[:, 1:] == ordered[:, :-1]).any(1)
        if not repeats.any():
            return drawn
        shape = (int(repeats.sum()), size)
        drawn[repeats] = torch.randint(total, shape, generator=generator)
