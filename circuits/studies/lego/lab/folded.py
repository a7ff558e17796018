"""What the folded model does: how far it generalises, why, and what edits change.

Ours: its FFN is learned first and frozen, its attention is two tables. The functions
that take specimens serve the paper's experiment and the theory's models too.
"""

import math
from collections.abc import Callable, Mapping
from itertools import takewhile

import torch
from torch import Tensor

from circuits.interventions.edit import Put, Rule, Sharpen
from circuits.lab import once
from circuits.studies.lego.law import diluted_error, irrelevant, longest, sharpness
from probes.weights import diagonal_excess
from trained.ensemble import move
from trained.lego.arms import BASE, CORRUPT, jump_length, round_name
from trained.lego.task import rollout
from trained.seeding import generator
from trained.task import Batch

from .models import Edit, LegoModels, Specimen, targets, uniform
from .readings import Marks, Tables

TINY = 1e-12
"""An eps that counts as none."""

Several = list[Specimen]
"""The models of all seeds."""


class FoldedLab(LegoModels):
    """Quantities of folded models, one value per seed."""

    def learned(self, several: Several) -> list[float]:
        """Share of chains of the training length that are right throughout."""
        return [s.marks(self.short(s)).all for s in several]

    def reach(self, several: Several) -> list[float]:
        """L*: the largest tested length up to which all are solved."""
        bar = self.config.test.solved
        return [float(solved_length(self.all_by_length(s), bar)) for s in several]

    def farthest(self, several: Several) -> list[float]:
        """Share of chains of the largest length that are right throughout."""
        return [self._longest(s).all for s in several]

    def far_step(self, several: Several) -> list[float]:
        """Value accuracy per step at the largest length."""
        return [self._longest(s).step for s in several]

    def all_by_length(self, specimen: Specimen) -> dict[int, float]:
        """Share right throughout at every test length."""
        return {length: marks.all for length, marks in self.curve(specimen).items()}

    def _longest(self, specimen: Specimen) -> Marks:
        *_, last = self.curve(specimen).values()
        return last

    def mass(self, several: Several) -> list[float]:
        """Attention on the two targets at the training length."""
        return [s.mass(self.short(s)) for s in several]

    def sharpness(self, several: Several) -> list[float]:
        """K, fitted to eps at the training length."""
        return [self._sharpness(s) for s in several]

    @once
    def _sharpness(self, specimen: Specimen) -> float:
        counts = irrelevant(self.config.train_length)
        return sharpness(specimen.error(self.short(specimen)), counts)

    def lookup(self, several: Several) -> list[float]:
        """Diagonal minus off-diagonal mean, the least over Q43, Q44 and heads."""
        return [float(diagonal_excess(s.tables).min()) for s in several]

    def shuffled_lookup(self, several: Several) -> list[float]:
        """The same of tables with their columns shuffled, the largest in size."""
        return [float(diagonal_excess(shuffled(s)).abs().max()) for s in several]

    def law_error(self, several: Several, *, growing: bool = False) -> list[float]:
        """|predicted - measured| / measured eps at the largest length.

        The prediction knows only K at the training length. `growing`: scores that grow
        with the logarithm of the length, for which the law must fail.
        """
        length, count = self.config.lengths[-1], self.config.test
        most = min(count.n_sentences, count.n_law)
        power = math.log(length) / math.log(self.config.train_length)
        edit = sharpened(power) if growing else None
        found = []
        for s in several:
            measured = s.error(s.sentences(length, most), edit)
            predicted = diluted_error(self._sharpness(s), irrelevant(length))
            found.append(abs(predicted - measured) / max(measured, TINY))
        return found

    def sharper(self, several: Several, power: float) -> list[float]:
        """Share right throughout at the largest length, scores times a factor."""
        return [s.marks(self.long(s), sharpened(power)).all for s in several]

    def levelled(
        self, several: Several, *, there: bool, elsewhere: bool = False
    ) -> list[float]:
        """Value accuracy with both diagonals levelled for a random half of X.

        Args:
            several: models of any kind.
            there: at steps of these variables, or of the others.
            elsewhere: as large an edit of as many other entries of the same rows.
        """
        found = []
        for s in several:
            gone, sentences = half_of_variables(s), self.short(s)
            edit = s.shifted(levelling(s, gone, elsewhere=elsewhere))
            right = s.marks(sentences, edit).value.double()
            hit = gone[sentences.variables[:, :-1]]
            found.append(float(right[hit if there else ~hit].mean()))
        return found

    def banded(self, several: Several) -> list[float]:
        """Share of queries whose two targets get the most of the mean attention."""
        found = []
        for s in several:
            sentences = self.short(s)
            largest = s.rows(sentences).mean(0).topk(2).indices.sort(-1).values
            hit = largest == targets(sentences)[0].sort(-1).values
            found.append(float(hit.all(-1).double().mean()))
        return found

    @property
    def dose_length(self) -> int:
        """The length at which attention is misplaced by hand."""
        return min(self.config.test.dose_length, self.config.lengths[-1])

    def dosed(self, several: Several, dose: float) -> list[float]:
        """Value accuracy per step with so much of the attention spread elsewhere."""
        return [self._dosed(s, dose).step for s in several]

    def _dosed(self, specimen: Specimen, dose: float, onto: str = "all") -> Marks:
        count = self.config.test.n_sentences
        sentences = specimen.sentences(self.dose_length, count)
        return specimen.marks(sentences, misplaced(dose, onto))

    def leak(self, several: Several, *, late: bool) -> list[float]:
        """Value accuracy, a leak onto predicates minus one onto answers.

        Late steps see about as many other answers as predicates, so that both leaks
        are spread alike; early ones see few answers.
        """
        dose, half = self.config.test.leak, self.dose_length // 2
        steps = slice(half, None) if late else slice(1, half)
        found = []
        for s in several:
            onto = [
                self._dosed(s, dose, where).value.double().mean(0)
                for where in ("predicates", "answers")
            ]
            found.append(float((onto[0] - onto[1])[steps].mean()))
        return found

    @once
    def tolerated(self, specimen: Specimen) -> float:
        """The largest eps at which a chain of the dose length is still solved.

        Where per-step accuracy falls through the L-th root of the bar, by bisection.
        """
        wanted = self.config.test.solved ** (1 / self.dose_length)
        return bisected(lambda eps: self._dosed(specimen, eps).step >= wanted)

    def prediction_error(self, several: Several, by: Several) -> list[float]:
        """|log2(predicted / measured)| length where all falls through the bar.

        Predicted from the tolerated eps and the K of the models `by`; beyond the
        tested lengths only one-sided.
        """
        lengths = self.config.lengths
        found = []
        for s, known in zip(several, by, strict=True):
            predicted = longest(self._sharpness(known), self.tolerated(s))
            measured = crossing(self.all_by_length(s), self.config.test.solved)
            if measured >= lengths[-1]:
                predicted = min(predicted, measured)
            if measured <= lengths[0]:
                predicted = max(predicted, measured)
            found.append(abs(math.log2(max(predicted, 1.0) / measured)))
        return found

    @once
    def exchanged(self, body: str, eyes: str) -> Several:
        """The FFNs of one group with the attention of another."""
        pairs = zip(self.folded(body), self.folded(eyes), strict=True)
        return [with_attention(own, donor) for own, donor in pairs]

    def rounds_reach(self) -> list[float]:
        """The least over rounds of L* / the round's length.

        Rounds whose double length is not tested are left out, unless it is the first.
        """
        rounds = self.config.self_training.lengths
        tested = [n for n in rounds if 2 * n <= self.config.lengths[-1]]
        by_round = [
            [reach / n for reach in self.reach(self.self_trained(round_name(n)))]
            for n in tested or rounds[:1]
        ]
        return [min(seed) for seed in zip(*by_round, strict=True)]

    def corrupt_reach(self) -> list[float]:
        """L* after one round of useless labels, over the training length."""
        found = self.reach(self.self_trained(CORRUPT))
        return [reach / self.config.train_length for reach in found]

    def worst_labels(self) -> list[float]:
        """How right the labels were that each round learned from, the worst round's."""
        rounds = self.config.self_training.lengths
        names = [BASE, *map(round_name, rounds[:-1])]
        found = [
            self.labels(self.self_trained(name), length)
            for name, length in zip(names, rounds, strict=True)
        ]
        return [min(seed) for seed in zip(*found, strict=True)]

    def jump_labels(self) -> list[float]:
        """How right they are for the length of a jump; without one, if blind."""
        jump, base = jump_length(self.config), self.self_trained(BASE)
        if jump is not None:
            return self.labels(base, jump)
        first = self.config.self_training.lengths[0]
        return self.labels([uniform(s) for s in base], first)

    def labels(self, several: Several, length: int) -> list[float]:
        """Share of new chains that a model, asked to label them, answers right.

        Right: every variable and every value, as both are learned from.
        """
        return [self._labels(s, length) for s in several]

    @torch.no_grad()
    def _labels(self, specimen: Specimen, length: int) -> float:
        drawn = specimen.sentences(length, self.config.test.n_labelled)
        sentences, model = move(drawn, self.device), specimen.model
        written = rollout(model, sentences, model.vocabulary)
        right = (written.values == sentences.values).all(1)
        right &= (written.variables == sentences.variables).all(1)
        return float(right.double().mean())


def solved_length(curve: Mapping[int, float], bar: float) -> int:
    """L*: the largest tested length up to which all reach the bar; 0 if none does.

    >>> solved_length({5: 1.0, 10: 0.95, 20: 0.4, 40: 0.9}, 0.9)
    10
    """
    lengths = takewhile(lambda length: curve[length] >= bar, sorted(curve))
    return max(lengths, default=0)


def crossing(curve: Mapping[int, float], bar: float) -> float:
    """Where the curve falls through the bar, linear in log L between tested lengths.

    The largest length if it never falls, the smallest if it starts below.
    """
    lengths = sorted(curve)
    above = lengths[0]
    if curve[above] < bar:
        return float(above)
    for length in lengths[1:]:
        if curve[length] < bar:
            share = (curve[above] - bar) / (curve[above] - curve[length])
            return above * (length / above) ** share
        above = length
    return float(above)


def bisected(
    holds: Callable[[float], bool], low: float = 0.02, high: float = 0.98
) -> float:
    """The place between low and high where something that held ceases to."""
    for _ in range(7):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def sharpened(power: float) -> Edit:
    """Scores multiplied by a factor."""
    return lambda _batch: Sharpen(power)


def misplaced(error: float, onto: str = "all") -> Edit:
    """A concentration error that is set by hand.

    (1 - eps) / 2 on each target, eps spread evenly elsewhere.

    Args:
        error: the attention that misses the targets.
        onto: where it goes: "predicates", "answers" or "all" other visible clauses.
            A query that sees no such clause keeps eps = 0.
    """

    def edit(batch: Batch) -> Rule:
        visible = _visible(batch)
        on = torch.zeros_like(visible).scatter(-1, targets(batch), True)
        leak = visible & ~on
        if onto != "all":
            is_answer = _is_answer(batch)
            leak = leak & (is_answer if onto == "answers" else ~is_answer)
        count = leak.sum(-1, keepdim=True)
        eps = torch.where(count > 0, error, 0.0)
        rows = on * (1 - eps) / 2 + leak * eps / count.clamp_min(1)
        return Put(rows[:, None])

    return edit


def _visible(batch: Batch) -> Tensor:
    """[batch, query, key]: all predicates, and answers up to the query itself."""
    keys = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    return ~_is_answer(batch) | (keys <= batch.role("answer")[..., None])


def _is_answer(batch: Batch) -> Tensor:
    keys = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    return keys >= batch.role("answer")[0, 0]


def with_attention(specimen: Specimen, donor: Specimen) -> Specimen:
    """One model's FFN with another's tables, which know variables only."""
    q43, q44 = donor.tables
    return specimen.with_tables(Q43=lambda _: q43, Q44=lambda _: q44)


def half_of_variables(specimen: Specimen) -> Tensor:
    """A random half of the variables, as a mask."""
    source = generator(specimen.seed, "lego", "half")
    order = torch.randperm(specimen.n_variables, generator=source)
    return order < specimen.n_variables // 2


def shuffled(specimen: Specimen) -> Tensor:
    """The tables with their columns shuffled: no entry belongs to a variable."""
    source = generator(specimen.seed, "lego", "shuffled")
    order = torch.randperm(specimen.n_variables, generator=source)
    return specimen.tables[..., order]


def levelling(specimen: Specimen, gone: Tensor, *, elsewhere: bool = False) -> Tables:
    """What sets diagonals of both tables to the mean of the row's other entries.

    `elsewhere`: the same change at another column of each of these rows.
    """
    tables = specimen.tables
    diagonal, n = tables.diagonal(dim1=-2, dim2=-1), tables.shape[-1]
    drop = (tables.sum(-1) - diagonal) / (n - 1) - diagonal
    change = torch.diag_embed(drop * gone.to(drop))
    return change.roll(1, -1) if elsewhere else change
