"""Figure 3: what is learned from a fixed number of prompts, on unseen ones.

`whole`: the whole key-query matrix, one value per seed. `partial`: position scores, one
value per draw.
"""

from functools import cache
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.weights import WeightEdit, edited
from circuits.lab import once
from trained.recall.arms import permuted_arm
from trained.recall.cells import Cell, drawn_from
from trained.recall.scores import mirrored
from trained.recall.task import (
    Episodes,
    bayes_ceiling,
    confusing_relations,
    unseen_episodes,
)
from trained.recall.theory import (
    answer_accuracy,
    optimal_attention,
    pattern_counts,
    quadratic_forms,
    relation_accuracy,
    relation_loss,
)
from trained.recall.theory_arms import partial_cells
from trained.recall.whole import WholeScores, prompt_quantities

from .few import TIED, FewLab


class SampleLab(FewLab):
    """The arms `whole-*`, `gd-*` and `partial`."""

    # The whole matrix.

    def sampled(
        self, arm: str, what: str, reading: int = 0, *, by_place: bool = False
    ) -> list[float]:
        """What the models of an arm do on unseen prompts, seed by seed.

        Args:
            arm: of Figure 3.
            what: `relative` (accuracy on the relation over the ceiling), `accuracy`,
                `confusing` (the same on confusing prompts), `answered` (accuracy on the
                answer given the relation).
            reading: which of `samples.readings`.
            by_place: without the rows of W_KQ that score words.
        """
        return [
            self._measured(arm, seed, by_place)[what][reading]
            for seed in self.seeds_of(arm)
        ]

    @once
    def _measured(self, arm: str, seed: int, by_place: bool) -> dict[str, list[float]]:
        model: WholeScores = self.model(arm, seed)
        if by_place:
            model = edited(model, {"W_KQ": _without_words(model.n_positions)})
        return on_unseen(model, self.episodes(arm, seed))

    def best_reading(self, count: int) -> list[float]:
        """Accuracy over ceiling for most table sizes, in the reading best at it.

        Of each reading the table is taken that has as many above as below it, so that
        its mean is at least a bound exactly if this holds for most tables.
        """
        readings = range(len(self.config.samples.readings))
        return max((self._middle(reading, count) for reading in readings), key=_mean)

    def _middle(self, reading: int, count: int) -> list[float]:
        tables = self.config.samples.subjects
        several = sorted(
            (self.sampled(f"whole-{n}-{count}", "relative", reading) for n in tables),
            key=_mean,
        )
        return several[(len(several) - 1) // 2]

    def second_steps(self) -> list[float]:
        """Accuracy on the answer in every cell and seed."""
        samples = self.config.samples
        readings = range(len(samples.readings))
        return [
            value
            for n, size, reading in product(samples.subjects, samples.sizes, readings)
            for value in self.sampled(f"whole-{n}-{size}", "answered", reading)
        ]

    def permuted(self, what: str) -> list[float]:
        """The same of the cell that was also trained on permuted answers."""
        return self.shuffled().sampled(permuted_arm(self.config), what)

    def baseline(self, n_subjects: int, *, saddle: bool) -> list[float]:
        """Accuracy over ceiling of uniform attention, or of the saddle's."""
        arm = f"whole-{n_subjects}-{self.config.samples.sizes[0]}"
        k = self.config.n_examples
        row = torch.full((2 * k + 2,), 1 / (2 * k + 2))
        if saddle:
            row = torch.cat([torch.full((2 * k,), 1 / (2 * k)), torch.zeros(2)])
        several = (self.episodes(arm, seed) for seed in self.seeds_of(arm))
        return [by_attention(row, e) / bayes_ceiling(e) for e in several]

    # Position scores.

    @property
    def tables(self) -> list[tuple[str, int]]:
        """Kinds and sizes of the tables of `partial`."""
        found = [(cell.kind, cell.subjects) for cell in partial_cells(self.config)]
        return list(dict.fromkeys(found))

    def partial(self, what: str, table: tuple[str, int], size: int) -> list[float]:
        """What position scores from so many prompts do, draw by draw.

        Args:
            what: `excess` (test loss on the relation above that of the population's
                best attention), `relative` or `answered`.
            table: its kind and size.
            size: prompts.
        """
        found = []
        (seed,) = self.seeds_of("partial")[:1]
        model = self.model("partial", seed)
        rows = zip(
            partial_cells(self.config),
            model.theta.cpu(),
            model.omega.cpu(),
            strict=True,
        )
        for cell, theta, omega in rows:
            if (cell.kind, cell.subjects, cell.size) == (*table, size):
                found.append(self._partial(what, cell, seed, theta, omega))
        return found

    def _partial(
        self, what: str, cell: Cell, seed: int, theta: Tensor, omega: Tensor
    ) -> float:
        if what == "answered":
            right = answer_accuracy(
                omega.softmax(-1), n_subjects=cell.subjects, tolerance=TIED
            )
            return float(right)
        tests, attention = cell.tests(seed, self.config.n_test), theta.softmax(-1)
        if what == "relative":
            return by_attention(attention, tests) / bayes_ceiling(tests)
        best = population_attention(cell, seed, self.config.partial.population)
        if (attention[:2].sum() > attention[2:4].sum()) != (best[0] > best[2]):
            best = mirrored(best)
        counts = pattern_counts(tests)
        own, least = (
            relation_loss(
                row.double().expand(len(counts), -1),
                counts,
                quadratic_forms(2),
                temperature=cell.temperature,
            ).mean()
            for row in (attention, best)
        )
        return float(own - least)


@torch.no_grad()
def on_unseen(model: WholeScores, episodes: Episodes) -> dict[str, list[float]]:
    """What the copies of a model do; see `SampleLab.sampled`."""
    data = prompt_quantities(episodes)
    moved = {name: tensor.to(model.W_E.device) for name, tensor in data.items()}
    first, second = (attention.cpu() for attention in model.attentions(moved))
    right = relation_accuracy(
        first,
        data["counts"].expand(len(first), -1, -1),
        model.forms.cpu(),
        tolerance=TIED,
    )
    answered = answer_accuracy(
        second, n_subjects=episodes.table.shape[1], tolerance=TIED
    )
    ceiling = bayes_ceiling(episodes)
    found = {
        "accuracy": right.mean(1).tolist(),
        "relative": (right.mean(1) / ceiling).tolist(),
        "answered": answered.mean(1).tolist(),
    }
    if episodes.n_examples == 2:
        asked = confusing_relations(episodes).any(1)
        found["confusing"] = right[:, asked].mean(1).tolist()
    return found


def by_attention(attention: Float[Tensor, " key"], episodes: Episodes) -> float:
    """Accuracy on the relation under one attention for all prompts."""
    counts = pattern_counts(episodes)
    forms = quadratic_forms(episodes.n_examples).to(attention.dtype)
    rows = attention.expand(len(counts), -1)
    right = relation_accuracy(rows, counts, forms, tolerance=TIED)
    return float(right.mean())


@cache
def population_attention(cell: Cell, seed: int, count: int) -> Float[Tensor, " key"]:
    """The best attention on prompts that nothing is trained or tested on."""
    number = drawn_from(seed, cell.draw) + 500
    episodes = unseen_episodes(cell.table(seed), 2, count, number)
    return optimal_attention(pattern_counts(episodes), 2, temperature=cell.temperature)


def _without_words(n_positions: int) -> WeightEdit:
    def drop(matrix: Tensor) -> Tensor:
        matrix[:, n_positions:] = 0
        return matrix

    return drop


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
