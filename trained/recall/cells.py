"""Many runs on position scores as copies of one model: what each of them is about.

A cell is a table and a number of prompts at a temperature; its draws differ in table,
prompts and perturbation. All of a draw comes from one number made of a seed and an
index, so a cell has as many draws whatever the number of seeds of the run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trained.seeding import generator

from .scores import ball
from .task import (
    Episodes,
    Table,
    confusing_relations,
    draw_episodes,
    joined,
    relation_table,
    unseen_episodes,
)
from .theory import pattern_counts, pattern_of_relation

CONFUSING_TESTS = 64
"""Confusing prompts on which the course of stage 2 is followed."""


def drawn_from(seed: int, index: int) -> int:
    """The number that a draw of a seed is made from.

    >>> drawn_from(301, 7)
    301007
    """
    return 1000 * seed + index


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Attributes:
        subjects: of the table.
        size: fine-tuning prompts.
        draw: the index of table, prompts and perturbation.
        temperature: of the loss, and what Algorithm 1's rates follow.
        kind: of the table.
        relations: rows of a random table.
        share: of an affine table's rows.
        plain: whether confusing prompts were replaced by others.
        first: the learning rate of stage 1, relative to the usual one.
        second: that of stage 2.
    """

    subjects: int
    size: int
    draw: int
    temperature: float
    kind: str = "affine"
    relations: int = 0
    share: float = 1.0
    plain: bool = False
    first: float = 1.0
    second: float = 1.0

    def table(self, seed: int) -> Table:
        """The facts."""
        number = drawn_from(seed, self.draw)
        table = relation_table(self.kind, self.subjects, self.relations, number)
        return table[: int(len(table) * self.share)]

    def prompts(self, seed: int) -> Episodes:
        """What the cell is fine-tuned on."""
        source = generator(
            drawn_from(seed, self.draw),
            "cell",
            self.subjects,
            self.size,
            f"{self.share:g}",
        )
        table = self.table(seed)
        drawn = draw_episodes(table, 2, self.size, generator=source)
        if not self.plain:
            return drawn
        kept = [_plain(drawn)]
        while sum(len(k.relation) for k in kept) < self.size:
            kept.append(_plain(draw_episodes(table, 2, self.size, generator=source)))
        return joined(kept).where(torch.arange(self.size))

    def tests(self, seed: int, count: int) -> Episodes:
        """Prompts that it was not fine-tuned on."""
        return _tests(self, seed, count)

    def perturbation(self, seed: int) -> Float[Tensor, " coordinate"]:
        """A point of the ball of radius T^3."""
        names = ("cell", "perturb", self.subjects, self.size, f"{self.share:g}")
        source = generator(drawn_from(seed, self.draw), *names)
        return ball(self.temperature**3, 13, generator=source)

    def steps(self, reach: float) -> int:
        """Gradient steps of stage 2: reach / T log(1/T)."""
        return math.ceil(reach / self.temperature * math.log(1 / self.temperature))


@cache
def _tests(cell: Cell, seed: int, count: int) -> Episodes:
    number = drawn_from(seed, cell.draw)
    seen = cell.prompts(seed)
    return unseen_episodes(cell.table(seed), 2, count, number, seen=seen)


def _plain(episodes: Episodes) -> Episodes:
    """Those without a confusing relation."""
    return episodes.where(~confusing_relations(episodes).any(1))


def stacked_counts(
    cells: Sequence[Cell], seed: int
) -> Float[Tensor, "copy row pattern"]:
    """The pattern counts of every cell's prompts, repeated to the same number."""
    several = [_counts(replace(cell, first=1.0, second=1.0), seed) for cell in cells]
    most = math.lcm(*(len(counts) for counts in several))
    return torch.stack([c.repeat(most // len(c), 1) for c in several])


@cache
def _counts(cell: Cell, seed: int) -> Float[Tensor, "row pattern"]:
    return pattern_counts(cell.prompts(seed)).double()


def labelled(cells: Sequence[Cell], seed: int) -> dict[str, Tensor]:
    """Pattern counts, and what permuting the answers needs: see `shuffle_copies`."""
    counts = stacked_counts(cells, seed)
    answers, crossed = [], []
    for cell in cells:
        prompts = cell.prompts(seed)
        again = counts.shape[1] // cell.size
        patterns = pattern_of_relation(prompts)[:, prompts.relation]
        answers.append(prompts.answers.repeat(again, 1))
        crossed.append(patterns.repeat(again, again))
    return {
        "counts": counts,
        "answers": torch.stack(answers),
        "crossed": torch.stack(crossed),
    }


def confusing_counts(
    cells: Sequence[Cell], seed: int
) -> Float[Tensor, "copy row pattern"]:
    """The pattern counts of unseen confusing prompts of every cell."""
    found = []
    for cell in cells:
        tests = cell.tests(seed, 20 * CONFUSING_TESTS)
        asked = confusing_relations(tests).any(1)
        counts = pattern_counts(tests.where(asked))[:CONFUSING_TESTS].double()
        # A tiny table may have few of them: repeated, their mean is the same.
        again = math.ceil(CONFUSING_TESTS / max(1, len(counts)))
        found.append(counts.repeat(again, 1)[:CONFUSING_TESTS])
    return torch.stack(found)


def perturbations(cells: Sequence[Cell], seed: int) -> Float[Tensor, "copy coordinate"]:
    """Of every cell."""
    return torch.stack([cell.perturbation(seed) for cell in cells])


def sizes(cells: Sequence[Cell]) -> Int[Tensor, " copy"]:
    """Subjects of every cell's table."""
    return torch.tensor([cell.subjects for cell in cells])
