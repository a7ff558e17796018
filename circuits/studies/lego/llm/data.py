"""Chains written out line by line, as prompts.

Worked example, the last chain of a prompt, of length 2 with f = (red -> green,
green -> blue, blue -> red), x = (m, k, t), both actions f and y0 = red:

    k = f(m)
    t = f(k)
    m = red
    k = green
    t = blue

Before it stand what the functions do and two solved chains. The model is read at every
"=" of an answer line from the second on. The twin tasks have the same surface, three
functions of three values: all rotations (C3), or three bijections that are not all
rotations (S3), where other functions may send a value to the same place.
"""

import itertools
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Piece, opening, spanned
from trained.task import Batch

from .rows import FUNCTIONS, VALUES, ChainRow, Group
from .settings import Settings

NAMES = tuple(letter for letter in string.ascii_letters if letter not in FUNCTIONS)

Action = tuple[int, ...]
"""Value index -> value index."""
_ROTATIONS: tuple[Action, ...] = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


@dataclass(frozen=True)
class Chain:
    """One chain x_l = g_l(x_{l-1}) and its values.

    Attributes:
        names: x_0 to x_L.
        actions: which function is g_1 to g_L.
        values: y_0 to y_L, as indices.
    """

    names: tuple[str, ...]
    actions: tuple[int, ...]
    values: tuple[int, ...]

    @property
    def length(self) -> int:
        """L."""
        return len(self.actions)


@dataclass(frozen=True)
class Exercise:
    """What the functions do, solved chains, and the chain that is read."""

    table: tuple[Action, ...]
    solved: tuple[Chain, ...]
    chain: Chain


def exercises(
    settings: Settings, group: Group, length: int, source: random.Random
) -> list[Exercise]:
    """A seed's random exercises with chains of a length."""
    several = []
    for _ in range(settings.count(length)):
        table = _table(group, source)
        short = [settings.solved_length] * settings.n_solved
        solved = [_chain(table, length, source) for length in short]
        several.append(Exercise(table, tuple(solved), _chain(table, length, source)))
    return several


def given(
    settings: Settings, rows: Sequence[ChainRow], source: random.Random
) -> list[Exercise]:
    """A seed's choice of chains of one length and group, as many as are asked for.

    The solved chains before each are drawn; they have its functions.
    """
    length = len(rows[0].actions)
    return [
        _exercise(settings, row, source)
        for row in source.sample(list(rows), settings.count(length))
    ]


def _exercise(settings: Settings, row: ChainRow, source: random.Random) -> Exercise:
    table = tuple(
        tuple(VALUES.index(v) for v in row.functions[name]) for name in FUNCTIONS
    )
    short = [settings.solved_length] * settings.n_solved
    solved = tuple(_chain(table, length, source) for length in short)
    actions = tuple(FUNCTIONS.index(action) for action in row.actions)
    return Exercise(table, solved, Chain(row.names, actions, row.values))


def as_row(group: Group, exercise: Exercise) -> ChainRow:
    """The chain of an exercise as it stands in a file."""
    chain = exercise.chain
    return ChainRow(
        group,
        {
            name: tuple(VALUES[y] for y in action)
            for name, action in zip(FUNCTIONS, exercise.table, strict=True)
        },
        chain.names,
        tuple(FUNCTIONS[action] for action in chain.actions),
        VALUES[chain.values[0]],
    )


def _table(group: Group, source: random.Random) -> tuple[Action, ...]:
    if group == "C3":
        return tuple(source.sample(_ROTATIONS, len(FUNCTIONS)))
    everything = list(itertools.permutations(range(len(VALUES))))
    while True:
        table = tuple(source.sample(everything, len(FUNCTIONS)))
        if set(table) != set(_ROTATIONS):
            return table


def _chain(table: Sequence[Action], length: int, source: random.Random) -> Chain:
    names = source.sample(NAMES, length + 1)
    actions = [source.randrange(len(table)) for _ in range(length)]
    values = [source.randrange(len(VALUES))]
    for action in actions:
        values.append(table[action][values[-1]])
    return Chain(tuple(names), tuple(actions), tuple(values))


def written(model: LanguageModel, several: Sequence[Exercise]) -> Batch:
    """Exercises of one length as prompts.

    Roles, with l from 1 to L and m from 0 to L: predicate{l}; name{m}, equals{m} and
    value{m}, the tokens of an answer line; answer{m}, all of these; asking{m}, the
    first two; asking, those of all steps from the first on.
    """
    texts = [[opening(model), *_pieces(exercise)] for exercise in several]
    prompts = spanned(model, texts)
    roles = dict(prompts.roles)
    length = several[0].chain.length
    for m in range(length + 1):
        parts = [roles[f"{part}{m}"] for part in ("name", "equals", "value")]
        roles[f"answer{m}"] = torch.cat(parts, 1)
        roles[f"asking{m}"] = torch.cat(parts[:2], 1)
    steps = [roles[f"asking{step}"] for step in range(1, length + 1)]
    roles["asking"] = torch.cat(steps, 1)
    return replace(prompts, roles=roles)


def _pieces(exercise: Exercise) -> list[Piece]:
    header = [Piece("Functions:\n")]
    for function, action in zip(FUNCTIONS, exercise.table, strict=True):
        steps = [f"{VALUES[y]} -> {VALUES[image]}" for y, image in enumerate(action)]
        header.append(Piece(f"{function}: {', '.join(steps)}\n"))
    for solved in exercise.solved:
        header.append(Piece("\n"))
        header += [Piece(piece.text) for piece in _lines(solved)]
    return [*header, Piece("\n"), *_lines(exercise.chain)]


def _lines(chain: Chain) -> list[Piece]:
    pieces = []
    for step, action in enumerate(chain.actions, 1):
        line = f"{chain.names[step]} = {FUNCTIONS[action]}({chain.names[step - 1]})"
        pieces += [Piece(line, f"predicate{step}"), Piece("\n")]
    for step, (name, value) in enumerate(zip(chain.names, chain.values, strict=True)):
        pieces += [
            Piece(name, f"name{step}"),
            Piece(" =", f"equals{step}"),
            Piece(f" {VALUES[value]}", f"value{step}"),
            Piece("\n"),
        ]
    return pieces


def value_tokens(model: LanguageModel) -> Int[Tensor, " value"]:
    """The tokens of the three values."""
    return torch.tensor([model.token(f" {v}") for v in VALUES], device=model.device)


def n_steps(prompts: Batch) -> int:
    """The length of the chains."""
    return sum(role.startswith("predicate") for role in prompts.roles)
