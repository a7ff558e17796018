"""How the theory's models scale with d: one stopping rule, several vocabularies.

Lengths beyond |X| - 1 cannot be tested, and a length that is censored there grows with
d by itself. So L_x, the length at which half of the chains are solved, is extrapolated:
the concentration error of the last query, n / (n + K), reaches what the FFN tolerates.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from circuits.claims import NotTested
from circuits.lab import once
from circuits.studies.lego.law import longest
from trained.lego.action import action
from trained.lego.stages import HALVED, LOOSE, RULE, SECOND_STEP, round_name
from trained.lego.theory import TheoryModel
from trained.lego.theory_arms import Course, Kind, grid

from .features import strongest_share
from .folded import FoldedLab, bisected, misplaced
from .models import Specimen, shuffled_columns, targets
from .theory import TheoryLab

HALF = 0.5
"""L_x is where this share of chains is right throughout."""

Quantity = Callable[[Specimen], float]


class GridLab(FoldedLab, TheoryLab):
    """Quantities of the grid's models: one value per seed, or one per seed and d.

    Attributes:
        stage: where the models are taken; nulls take them elsewhere.
        shuffles: whether columns of Q are shuffled, a null.
    """

    stage = RULE
    shuffles = False

    def loose(self) -> "GridLab":
        """A null: models stopped at a loss that does not depend on d."""
        return self.derived("loose", lambda: self.other(stage=LOOSE))

    def halved(self) -> "GridLab":
        """The same models trained with half the cap on a step of Q."""
        return self.derived("halved", lambda: self.other(stage=HALVED))

    def columns_shuffled(self) -> "GridLab":
        """A null: the columns of Q43 and of Q44 in another order."""
        return self.derived("columns", lambda: self.other(shuffles=True))

    @once
    def at(self, group: str, d: int, stage: str = "") -> list[Specimen]:
        """The models of an action at one d."""
        return self._of(Course(self.config, group, d), stage or self.stage)

    def _of(self, course: Course, stage: str) -> list[Specimen]:
        found = self._specimens(course.text, course.name, course.milestones[stage])
        return [shuffled_columns(s) for s in found] if self.shuffles else found

    def halved_two(self, group: str) -> list[float]:
        """Share of sentences of length 2 solved by models trained with half the cap.

        Simply transitive actions: of the largest d; others: by Algorithm 2.
        """
        if action(group).is_simply_transitive:
            return self._two(self.at(group, self.grid(group)[-1], HALVED))
        return self._two(self._of(self.course(group, kind="halved"), SECOND_STEP))

    def grid(self, group: str) -> tuple[int, ...]:
        """The d at which an action was trained; two at least."""
        found = grid(self.config, group)
        if len(found) < 2:
            name = action(group).slug
            raise NotTested(f"theory.grid={self.config.theory.grid}: {name} needs two")
        return found

    def slope(self, group: str, what: str) -> list[float]:
        """Of log quantity on log d, seed by seed."""
        sizes = self.grid(group)
        rows = zip(*(self.by_d(group, d, what) for d in sizes), strict=True)
        return [log_slope(sizes, row) for row in rows]

    def line(self, group: str, what: str) -> list[float]:
        """Slope of a quantity itself on log d, seed by seed."""
        sizes = self.grid(group)
        rows = zip(*(self.by_d(group, d, what) for d in sizes), strict=True)
        return [_line(sizes, np.array(row)) for row in rows]

    @once
    def by_d(self, group: str, d: int, what: str) -> list[float]:
        """A quantity of every seed's model at one d."""
        quantity: Quantity = getattr(self, f"_{what}")
        return [quantity(s) for s in self.at(group, d)]

    def log_ratio(self, above: str, below: str, what: str) -> list[float]:
        """Mean over the d that both have of log2 of a quantity's ratio."""
        return self._over_shared(above, below, what, lambda _, logs: float(logs.mean()))

    def ratio_slope(self, above: str, below: str, what: str) -> list[float]:
        """Slope in log d of the logarithm of a quantity's ratio."""
        return self._over_shared(above, below, what, _line)

    def slope_difference(self, above: str, below: str, what: str) -> list[float]:
        """Of the slopes over each action's own d, seed by seed."""
        pairs = zip(self.slope(above, what), self.slope(below, what), strict=True)
        return [one - other for one, other in pairs]

    def _over_shared(
        self,
        above: str,
        below: str,
        what: str,
        reduce: Callable[[Sequence[int], np.ndarray], float],
    ) -> list[float]:
        shared = [d for d in self.grid(above) if d in self.grid(below)]
        if not shared:
            raise NotTested(f"{above} and {below} share no d of the grid")
        values = [
            np.log2(self.by_d(above, d, what)) - np.log2(self.by_d(below, d, what))
            for d in shared
        ]
        return [float(reduce(shared, logs)) for logs in np.stack(values, 1)]

    def unpaired_grid(self, group: str, what: str, reduce: str) -> list[float]:
        """A null: an action against itself, every second seed against the next."""
        sizes = self.grid(group)
        table = np.log2([self.by_d(group, d, what) for d in sizes]).T
        count = len(table) // 2 * 2
        if not count:
            raise NotTested("two seeds are needed for an unpaired null")
        logs = table[0:count:2] - table[1:count:2]
        if reduce == "slope":
            return [_line(sizes, row) for row in logs]
        return [float(row.mean()) for row in logs]

    def _reach(self, specimen: Specimen) -> float:
        """L_x, extrapolated."""
        return longest(self._sharpness(specimen), self.tolerance(specimen))

    def _eps(self, specimen: Specimen) -> float:
        """The concentration error at L = 2."""
        return specimen.error(specimen.sentences(2, self._count))

    def _delta(self, specimen: Specimen) -> float:
        """Delta at L = 2: |p - a| of each step's means over sentences.

        Differences of single sentences are those of the sampled variables' entries.
        """
        sentences = specimen.sentences(2, self._count)
        looks = specimen.rows(sentences).gather(-1, targets(sentences)).mean(0)
        return float((looks[:, 0] - looks[:, 1]).abs().mean())

    def _diagonal(self, specimen: Specimen) -> float:
        """The smaller of both mean diagonals."""
        diagonals = specimen.tables.diagonal(dim1=-2, dim2=-1)
        return float(diagonals.mean((1, 2)).min())

    def _rest(self, specimen: Specimen) -> float:
        """Mean |off-diagonal| over the mean diagonal, the larger of both blocks."""
        tables = specimen.tables[:, 0]
        off = tables[:, ~torch.eye(tables.shape[-1]).bool()].abs().mean(1)
        diagonal = tables.diagonal(dim1=-2, dim2=-1).mean(1)
        return float((off / diagonal).max())

    def _copy(self, specimen: Specimen) -> float:
        """The active sum of <W_{4,s,r,1}, e_s>: what copies variable s to its logit."""
        assert isinstance(specimen.model, TheoryModel)
        own = specimen.model.block.variable.W1.diagonal(dim1=0, dim2=1)
        return float(own.clamp_min(0).sum(0).mean())

    def _names(self, specimen: Specimen) -> float:
        """How far the copying neurons' weight on another variable moved, at most.

        In units of sigma_0; of a million weights one starts beyond 5 of them.
        """
        moved = self._moved(specimen)
        moved["W1"].diagonal(dim1=0, dim2=1).zero_()
        return max(float(moved[name].max()) for name in ("W1", "W3", "W4"))

    def _others(self, specimen: Specimen) -> float:
        """The same of their weights on actions and values."""
        moved = self._moved(specimen)
        return max(float(moved[name].max()) for name in ("W2", "W5"))

    def _moved(self, specimen: Specimen) -> dict[str, Tensor]:
        """|change| of each weight of the copying neurons, in units of sigma_0."""
        model = specimen.model
        assert isinstance(model, TheoryModel)
        first = Course(self.config, specimen.group, model.vocabulary.size)
        start = dict(first.build(specimen.seed).block.variable.named_parameters())
        scale = model.vocabulary.size**0.5
        return {
            name: scale * (weight.cpu() - start[name]).detach().abs()
            for name, weight in model.block.variable.named_parameters()
        }

    def _single(self, specimen: Specimen) -> float:
        """Share of the right logit that its strongest neuron gives."""
        assert isinstance(specimen.model, TheoryModel)
        return strongest_share(specimen.model, specimen.action)

    def everywhere(self, group: str, stage: str = "") -> list[float]:
        """Share right throughout at the worst length up to |X| - 1 of the worst d.

        After the last round, or after another stage of Algorithm 2.
        """
        rows = [
            self._everywhere(Course(self.config, group, d), stage)
            for d in self.grid(group)
        ]
        return [min(seed) for seed in zip(*rows, strict=True)]

    def everywhere_at_least(self, group: str, *, kind: Kind = "") -> list[float]:
        """The same at the least d, which is trained with half the cap too."""
        least = Course(self.config, group, self.grid(group)[0], kind=kind)
        return self._everywhere(least, "")

    @once
    def _everywhere(self, course: Course, stage: str) -> list[float]:
        last = round_name(course.rounds[-1]) if course.rounds else SECOND_STEP
        lengths = [2, 5, 10, 20, 40, 80, 160]
        most = course.n_variables - 1
        return [
            min(self._all(s, n) for n in (*(n for n in lengths if n < most), most))
            for s in self._of(course, stage or last)
        ]

    @property
    def _count(self) -> int:
        return max(self.config.test.n_short, self.config.test.n_sentences)

    @once
    def tolerance(self, specimen: Specimen) -> float:
        """The largest eps at which half of the chains of a dose length are solved."""
        length = min(self.config.test.dose_length, specimen.n_variables - 1)
        sentences = specimen.sentences(length, self.config.test.n_law)
        wanted = HALF ** (1 / length)

        def solved(eps: float) -> bool:
            marks = specimen.marks(sentences, misplaced(eps))
            return float((marks.variable & marks.value).double().mean()) >= wanted

        return bisected(solved)

    def foretold(self, group: str) -> list[float]:
        """Share of d at which L_x fits a test: solved at a third, not at thrice.

        Lengths that a model lacks the variables for, or that take too long, are not
        asked: the share is of the questions that can be.
        """
        rows = zip(*(self._foretold(group, d) for d in self.grid(group)), strict=True)
        return [float(np.mean([a for answers in row for a in answers])) for row in rows]

    def _foretold(self, group: str, d: int) -> list[list[bool]]:
        found = []
        for specimen in self.at(group, d):
            reach = self._reach(specimen)
            most = min(specimen.n_variables - 1, LONGEST_TEST)
            short, long = max(2, min(most, round(reach / 3))), round(3 * reach)
            answers = [self._all(specimen, short) >= HALF]
            answers += [self._all(specimen, long) < HALF] if long <= most else []
            found.append(answers)
        return found

    def _all(self, specimen: Specimen, length: int) -> float:
        count = self.config.test.n_law
        return specimen.marks(specimen.sentences(length, count)).all


LONGEST_TEST = 80
"""Longest chains by which an extrapolation is checked."""


def log_slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Of log values on log sizes, least squares.

    >>> round(log_slope([10, 100], [3.0, 30.0]), 6)
    1.0
    """
    if not all(math.isfinite(v) and v > 0 for v in values):
        return math.nan
    return _rounded(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def _line(sizes: Sequence[int], logs: np.ndarray) -> float:
    return _rounded(np.polyfit(np.log2(sizes), logs, 1)[0])


def _rounded(slope: float) -> float:
    """The slope of equal values is 0, not what rounding leaves."""
    return round(float(slope), 12)
