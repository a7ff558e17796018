"""Algorithm 1 from few prompts, any number of subjects: what its runs ended at.

Lists have one value per draw of a cell; see `trained.recall.cells`.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.claims import NotTested
from circuits.conditions import Share
from circuits.interventions.passes import answer_logits
from circuits.lab import once
from probes.attention import within_pair_ratio
from trained.recall.cells import Cell, drawn_from
from trained.recall.model import RecallModel, constructed_model
from trained.recall.scores import PositionScores, install
from trained.recall.slopes import (
    answer_slope,
)
from trained.recall.task import (
    Episodes,
    Vocabulary,
    confusing_relations,
    mismatched,
)
from trained.recall.theory import (
    matchings,
    pattern_counts,
    quadratic_forms,
    relation_loss,
)
from trained.recall.theory_arms import few_cells, first_step_cells, rate_cells
from trained.seeding import generator
from trained.task import Batch

from .theory import PAIRS, TheoryLab

CONFUSING = matchings(2).index(((0, 1), (1, 0)))
"""The match pattern of a confusing relation."""

TIED = 1e-4
"""Logits this close are equal in float32."""

SOLVED = 0.9
"""The probability at which the confusing prompts count as solved."""


@dataclass(frozen=True)
class Ended:
    """One draw of a cell, and the scores that it ended at."""

    cell: Cell
    seed: int
    n_test: int
    theta: Float[Tensor, " key"]
    omega: Float[Tensor, " key2"]
    doubt: float

    @property
    def attention(self) -> Float[Tensor, " key"]:
        """Of EoS."""
        return self.theta.softmax(-1)

    @cached_property
    def probabilities(self) -> Float[Tensor, " prompt"]:
        """Of the true relation, on unseen prompts."""
        counts = test_counts(self.cell, self.seed, self.n_test)
        loss = relation_loss(
            self.attention.expand(len(counts), -1),
            counts,
            quadratic_forms(2),
            temperature=self.cell.temperature,
        )
        return (-loss).exp()

    @property
    def is_confusing(self) -> Bool[Tensor, " prompt"]:
        """Which of these have a confusing relation."""
        return test_counts(self.cell, self.seed, self.n_test)[:, CONFUSING] > 0

    @property
    def confusing(self) -> float:
        """The mean probability on confusing prompts."""
        return float(self.probabilities[self.is_confusing].mean())

    @property
    def least(self) -> float:
        """The least probability on any prompt."""
        return float(self.probabilities.min())

    @property
    def least_other(self) -> float:
        """The least probability on a prompt that is not confusing."""
        return float(self.probabilities[~self.is_confusing].min())

    @property
    def saw_confusing(self) -> bool:
        """Whether a confusing prompt was among those that it learned from."""
        return bool(confusing_relations(self.cell.prompts(self.seed)).any())

    @property
    def mismatched(self) -> float:
        """The share of mismatched prompts among them."""
        return float(mismatched(self.cell.prompts(self.seed)).double().mean())

    @property
    def odds(self) -> float:
        """The largest log odds of a wrong answer, at the end and on the way."""
        heat = self.theta.new_full((1, 1), self.cell.temperature)
        many = torch.tensor([self.cell.subjects])
        _, now = answer_slope(self.omega[None], n_subjects=many, temperature=heat)
        return max(self.doubt, float(now))

    @property
    def ratio(self) -> float:
        """The largest ratio inside a pair."""
        return float(within_pair_ratio(self.attention[None], PAIRS))

    @property
    def product(self) -> float:
        """(v1 - v3)(v2 - v4): how far the true relation is ahead of the confusing."""
        v = self.attention
        return float((v[0] - v[2]) * (v[1] - v[3]))


class FewLab(TheoryLab):
    """The runs of `few-*`, `first-step` and `rate-*`."""

    @once
    def _ended(self, arm: str) -> dict[Cell, Ended]:
        """The runs of an arm by their cells."""
        cells = self._cells(arm)
        (seed,) = self.seeds_of(arm)[:1]
        last = arm == "first-step" or not self.early
        model: PositionScores = self.model(arm, seed, None if last else 1)
        rows = zip(
            cells,
            model.theta.detach().cpu(),
            model.omega.detach().cpu(),
            model.doubt.tolist(),
            strict=True,
        )
        n = self.config.few.n_test
        return {cell: Ended(cell, seed, n, *scores) for cell, *scores in rows}

    def _cells(self, arm: str) -> list[Cell]:
        if arm == "first-step":
            return first_step_cells(self.config)
        kind, _, heat = arm.partition("-")
        cells = few_cells if kind == "few" else rate_cells
        return cells(self.config, float(heat))

    def few(
        self,
        quantity: str,
        temperature: float,
        n_subjects: int,
        size: int,
        *,
        plain: bool = False,
    ) -> list[float]:
        """A quantity of `Ended` in one cell of the grid.

        Args:
            quantity: an attribute.
            temperature: one of `few.temperatures`.
            n_subjects: one of `few.subjects`.
            size: one of `few.sizes`.
            plain: the null whose prompts are not confusing.
        """
        return [
            float(getattr(ended, quantity))
            for ended in self._chosen(temperature, n_subjects, size, plain)
        ]

    def _chosen(
        self, temperature: float, n_subjects: int, size: int, plain: bool
    ) -> list[Ended]:
        found = self._ended(f"few-{temperature:g}")
        chosen = [
            ended
            for cell, ended in found.items()
            if (cell.subjects, cell.size, cell.plain) == (n_subjects, size, plain)
        ]
        if not chosen:
            raise NotTested(f"no cell of few with n={n_subjects}, N={size}")
        return chosen

    def agreement(self, temperature: float) -> list[Share]:
        """Whether success and having seen a confusing prompt agree, run by run."""
        found = self._ended(f"few-{temperature:g}").values()
        return [
            Share(int((ended.confusing >= 0.99) == ended.saw_confusing), 1)
            for ended in found
            if not ended.cell.plain
        ]

    def success(
        self, temperature: float, n_subjects: int, size: int, *, plain: bool = False
    ) -> Share:
        """The share of draws that solve the confusing prompts."""
        found = self.few("confusing", temperature, n_subjects, size, plain=plain)
        return Share(sum(p >= 0.99 for p in found), len(found))

    def decoded(
        self, temperature: float, n_subjects: int, size: int, *, confusing: bool = False
    ) -> list[float]:
        """Share of right answers by the real model that writes its own relation.

        Args:
            temperature: one of `few.temperatures`.
            n_subjects: one of `few.subjects`.
            size: one of `few.sizes`.
            confusing: on confusing prompts only.
        """
        most = self.config.few.n_decode
        return [
            _decoded(ended, most, confusing=confusing)
            for ended in self._chosen(temperature, n_subjects, size, False)
        ]

    def hasty_odds(self, temperature: float, factor: float) -> list[float]:
        """Log odds of a wrong answer after one step with another learning rate."""
        few = self.config.few
        heat = torch.tensor([[temperature]], dtype=torch.float64)
        found = []
        for n in few.subjects:
            many = torch.tensor([n])
            zero = torch.zeros(1, 7, dtype=torch.float64)
            slope, _ = answer_slope(zero, n_subjects=many, temperature=heat)
            rate = few.first_rate * temperature**1.5 * math.log(1 / temperature)
            moved = zero - factor * rate * slope
            _, odds = answer_slope(moved, n_subjects=many, temperature=heat)
            found.append(float(odds))
        return found

    # Stage 1 alone.

    def first_steps(self, *, slow: bool = False) -> list[Ended]:
        """Every part of the table and draw after the one step, or a tenth of it."""
        found = self._ended("first-step").items()
        return [ended for cell, ended in found if (cell.first < 1) == slow]

    def proportion(self) -> list[float]:
        """Largest over least of (1/6 - v5) / p(mismatched) over the shares, by draw."""
        by_draw: dict[int, list[float]] = {}
        for ended in self.first_steps():
            fallen = 1 / 6 - float(ended.attention[4])
            own = by_draw.setdefault(ended.cell.draw, [])
            own.append(fallen / ended.mismatched)
        return [_spread(several) for several in by_draw.values()]

    # The course of stage 2.

    def waiting(self, temperature: float, share: float, *, slow: bool) -> list[float]:
        """T / log(1/T) times the steps until confusing prompts are solved, by draw.

        Those that never are count as the end of the run; `slow`: the null's rate.
        """
        arm, rate = f"rate-{temperature:g}", self.config.rate
        course = self.metrics(arm)
        unit = temperature / math.log(1 / temperature) * rate.stride
        found = []
        for index, cell in enumerate(self._cells(arm)):
            is_null = index >= len(rate.shares) * rate.draws
            if cell.share == share and is_null == slow:
                solved = course[f"confusing{index}"][0, 1:] >= SOLVED
                first = int(solved.double().argmax()) if solved.any() else len(solved)
                found.append(first * unit)
        return found

    def rate_spread(self, *, slow: bool = False) -> list[float]:
        """Largest over least median of `waiting` over the temperatures, by table."""
        rate = self.config.rate
        medians = [
            [
                float(torch.tensor(self.waiting(t, share, slow=slow)).median())
                for t in rate.temperatures
            ]
            for share in rate.shares
        ]
        return [_spread(several) for several in medians]


@cache
def test_counts(cell: Cell, seed: int, n_test: int) -> Int[Tensor, "prompt pattern"]:
    """Pattern counts of a cell's unseen prompts."""
    return pattern_counts(cell.tests(seed, n_test))


@cache
def _built(cell: Cell, seed: int) -> RecallModel:
    """The real model of a draw's table."""
    number = drawn_from(seed, cell.draw)
    return constructed_model(cell.table(seed), 2, number).requires_grad_(False)


@torch.no_grad()
def _decoded(ended: Ended, most: int, *, confusing: bool) -> float:
    cell, seed = ended.cell, ended.seed
    tests = cell.tests(seed, ended.n_test)
    if confusing:
        tests = tests.where(ended.is_confusing)
    tests = tests.where(torch.arange(min(most, len(tests.relation))))
    # One model serves all cells of a table.
    base = Cell(cell.subjects, 1, cell.draw, 1.0, share=cell.share)
    model = install(_built(base, seed), ended.theta, ended.omega)
    return two_step_accuracy(model, tests, seed)


@torch.no_grad()
def two_step_accuracy(model: RecallModel, episodes: Episodes, seed: int) -> float:
    """Share of right answers after the model's own relation; ties are drawn by lot."""
    words, device = Vocabulary.of(episodes.table), model.W_E.device
    first = episodes.relation_step().to(device)
    logits = answer_logits(model, first)[:, words.relations].cpu()
    written = words.relations.start + _drawn(logits, seed)
    tokens = torch.cat([first.tokens, written[:, None].to(device)], 1)
    answers = answer_logits(model, Batch(tokens, first.targets))[:, words.answers]
    chosen = _drawn(answers.cpu(), seed)
    return float((chosen == episodes.answers[:, -1]).double().mean())


def _drawn(logits: Float[Tensor, "batch token"], seed: int) -> Int[Tensor, " batch"]:
    """The largest logit's place, by lot among those that tie."""
    source = generator(seed, "ties")
    lot = torch.rand(logits.shape, generator=source)
    return torch.where(logits >= logits.amax(1, keepdim=True) - TIED, lot, -1).argmax(1)


def _spread(values: list[float]) -> float:
    """The largest over the least."""
    return max(values) / max(min(values), 1e-12)
