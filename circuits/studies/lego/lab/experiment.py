"""The paper's experiment: how far its transformers reach, where they look, and why.

L_x is the length at which the share of chains that are right throughout falls through
one half, between tested lengths linear in log L; |X| - 1 censors it.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress, pairwise

import torch
from torch import Tensor

from circuits.claims import NotTested
from circuits.hooks import record
from circuits.interventions.edit import Put, Rule
from circuits.lab import once
from circuits.studies.lego.law import diluted_error, irrelevant, sharpness
from trained.ensemble import move
from trained.errors import or_intact
from trained.lego.config import first_of_kind
from trained.lego.stages import BASE, gold, taught
from trained.lego.standard_arms import Recipe
from trained.lego.task import table_of, verified_rollout
from trained.task import Batch

from .folded import FoldedLab, bisected, crossing, sharpened
from .models import PATTERN, Edit, Specimen, targets

HALF = 0.5
STEP = math.sqrt(2)
"""Factor between tested lengths."""

APART = 0.25
"""Least |log2| of a quotient of two L_x for which there is a way between them."""

Several = list[Specimen]


class ExperimentLab(FoldedLab):
    """Quantities of the experiment's models, one value per seed."""

    @property
    def simple(self) -> str:
        """The simply transitive action of the experiment."""
        return self._kind(simply=True)

    @property
    def symmetric(self) -> str:
        """The other one."""
        return self._kind(simply=False)

    def _kind(self, *, simply: bool) -> str:
        found = first_of_kind(self.config.standard.groups, simply=simply)
        if found is None:
            kind = "simply transitive" if simply else "other"
            raise NotTested(f"the experiment has no {kind} action")
        return found

    @property
    def farthest_length(self) -> int:
        """The longest chain that the experiment's models are asked."""
        return min(self.config.lengths[-1], self.config.standard.n_variables - 1)

    def paired(self, *groups: str) -> list[Several]:
        """The models of each action, of the seeds whose models are all converged."""
        several = [self.converged(group) for group in groups]
        shared = set.intersection(*({s.seed for s in found} for found in several))
        if not shared:
            raise NotTested("no seed is through the gate with every action")
        return [[s for s in found if s.seed in shared] for found in several]

    def share_through(self, group: str) -> list[float]:
        """The share of seeds that pass the gate, one number."""
        passed = self.gate([group])
        return [sum(passed) / len(passed)]

    def at_epoch(self, group: str, epoch: int) -> Several:
        """An action's models after so many epochs."""
        recipe = Recipe(self.config, group)
        if epoch not in recipe.kept:
            raise NotTested(f"nothing is kept of epoch {epoch}")
        return self._specimens(group, recipe.name, recipe.kept[epoch])

    gilded = False
    """Whether rounds are replaced by as many updates on true answers, a null."""

    def true_answers(self) -> "ExperimentLab":
        """A null: true answers at the first length in place of every round."""
        return self.derived("gilded", lambda: self.other(gilded=True))

    def after(self, stage: str) -> Several:
        """The symmetric action's models after a stage, of converged seeds."""
        recipe = Recipe(self.config, self.symmetric)
        if self.gilded:
            stage = {taught(n): gold(n) for n in recipe.rounds}.get(stage, stage)
        if stage not in recipe.milestones:
            raise NotTested(f"standard.rounds={recipe.rounds}: no stage {stage}")
        seeds = {s.seed for s in self.converged(self.symmetric)}
        found = self._specimens(self.symmetric, recipe.name, recipe.milestones[stage])
        return [s for s in found if s.seed in seeds]

    def solved_at(self, several: Several, length: int) -> list[float]:
        """Share of chains of a length that are right throughout."""
        return [self._solved(s, length) for s in several]

    @once
    def _solved(self, specimen: Specimen, length: int) -> float:
        count = self.config.test.n_reach
        return specimen.marks(specimen.sentences(length, count)).all

    def crossings(self, several: Several) -> list[float]:
        """L_x."""
        return [self._crossing(s) for s in several]

    @once
    def _crossing(self, specimen: Specimen) -> float:
        return self._crossing_of(specimen, partial(self._solved, specimen))

    def _edited_crossing(self, specimen: Specimen, edit: Edit) -> float:
        """L_x with edited attention."""
        count = self.config.test.n_reach

        def solved(length: int) -> float:
            return specimen.marks(specimen.sentences(length, count), edit).all

        return self._crossing_of(specimen, solved)

    def _crossing_of(self, specimen: Specimen, solved: Callable[[int], float]) -> float:
        """L_x, asked until hardly a chain is right."""
        found = {}
        for length in lengths_to(self.config.train_length, self._longest_of(specimen)):
            found[length] = solved(length)
            if found[length] < HALF / 4:
                break
        return crossing(found, HALF)

    def _longest_of(self, specimen: Specimen) -> int:
        return min(self.config.lengths[-1], specimen.n_variables - 1)

    def log_ratios(self, above: Sequence[float], below: Sequence[float]) -> list[float]:
        """log2 of quotients, seed by seed."""
        return [math.log2(a / b) for a, b in zip(above, below, strict=True)]

    def unpaired_logs(self, values: Sequence[float]) -> list[float]:
        """A null: log2 of every second seed's value over the next one's."""
        found = self.unpaired(values)
        if not found:
            raise NotTested("two seeds are needed for an unpaired null")
        return [math.log2(v) for v in found]

    def unpaired_differences(self, values: Sequence[float]) -> list[float]:
        """A null: every second seed's value minus the next one's."""
        count = len(values) // 2 * 2
        if not count:
            raise NotTested("two seeds are needed for an unpaired null")
        return self.differences(values[0:count:2], values[1:count:2])

    @once
    def looks(self, specimen: Specimen, length: int) -> Tensor:
        """Mean attention of each query on its predicate and its answer, [2, step]."""
        sentences = specimen.sentences(length, self.config.test.n_short)
        rows = specimen.rows(sentences)
        return rows.gather(-1, targets(sentences)).double().mean(0).T

    def falls(self, several: Several, what: int, short: int, long: int) -> list[float]:
        """How much less is on the predicate (0) or answer (1) of longer chains."""
        means = [
            [float(self.looks(s, length)[what].mean()) for length in (short, long)]
            for s in several
        ]
        return [before - after for before, after in means]

    def drop(self, several: Several, what: int, length: int) -> list[float]:
        """Relative fall from the first to the last fifth of the steps."""
        found = []
        for s in several:
            looks, fifth = self.looks(s, length)[what], max(1, length // 5)
            first, last = looks[:fifth].mean(), looks[-fifth:].mean()
            found.append(float(1 - last / first))
        return found

    def diluted(self, several: Several, *, constant: bool = False) -> list[float]:
        """|predicted - measured| / measured eps at the longest chains.

        Predicted by K at the training length, or as `constant` in the length.
        """
        first = self.config.train_length
        found = []
        for s in several:
            length = self._longest_of(s)
            near, far = (
                1 - float(self.looks(s, n).sum(0).mean()) for n in (first, length)
            )
            k = sharpness(near, irrelevant(first))
            predicted = near if constant else diluted_error(k, irrelevant(length))
            found.append(abs(predicted - far) / far)
        return found

    def reordered(self, several: Several, what: str) -> list[float]:
        """With predicates in another order: |change of p + a|, `all`, or its loss."""
        found = []
        for s in several:
            plain = self.short(s)
            other = s.sentences(
                self.config.train_length, len(plain.actions), order="permuted"
            )
            if what == "mass":
                found.append(abs(s.mass(other) - s.mass(plain)))
            else:
                solved = s.marks(other).all
                before = s.marks(plain).all
                found.append(solved if what == "all" else before - solved)
        return found

    def scaled(
        self, several: Several, factor: float, *, wrong_keys: bool = False
    ) -> list[float]:
        """log2 of L_x with scores times a factor over L_x.

        Of models whose L_x is not censored: nothing could rise.

        Args:
            several: the models.
            factor: of the scores.
            wrong_keys: what is added to a score is another key's of the same block.
        """
        free = [s for s in several if self._crossing(s) < self._longest_of(s)]
        if not free:
            raise NotTested("every model solves the longest chains")
        return [self._scaled(s, factor, wrong_keys=wrong_keys) for s in free]

    def _scaled(self, s: Specimen, factor: float, *, wrong_keys: bool = False) -> float:
        edit = partial(misdirected, s, factor) if wrong_keys else sharpened(factor)
        return math.log2(self._edited_crossing(s, edit) / self._crossing(s))

    def gains(self, stage: str, than: str) -> list[float]:
        """log2 of L_x after a stage over that after another.

        Of seeds whose second L_x is not censored: nothing could be above it.
        """
        pairs = zip(
            *(self.crossings(self.after(n)) for n in (stage, than)), strict=True
        )
        free = [(a, b) for a, b in pairs if b < self.farthest_length]
        if not free:
            raise NotTested("every model solves the longest chains without rounds")
        return [math.log2(a / b) for a, b in free]

    def moved(self, body: Several, eyes: Several, **how: bool) -> list[float]:
        """How far log L_x of one action moves to the other's once K is the other's.

        The factor of the scores is set at the training length, so on other sentences;
        1 is all the way; untrained models, which have none, do not move.
        """
        found = []
        for own, other in zip(body, eyes, strict=True):
            reach = [math.log2(self._crossing(s)) for s in (own, other)]
            factor = self._factor(own, self._sharpness(other))
            moved = self._scaled(own, factor, **how)
            found.append(moved / (reach[1] - reach[0]))
        return found or [0.0]

    def apart(self, *groups: str) -> list[Several]:
        """The models of two actions, of converged seeds whose L_x differ."""
        one, other = self.paired(*groups)
        logs = self.log_ratios(self.crossings(one), self.crossings(other))
        far = [abs(log) >= APART for log in logs]
        return [list(compress(found, far)) for found in (one, other)]

    def _factor(self, specimen: Specimen, wanted: float) -> float:
        """What scores are multiplied by so that K at the training length is this."""
        counts = irrelevant(self.config.train_length)
        sentences = self.short(specimen)

        def too_blunt(log: float) -> bool:
            edit = partial(specimen.error, sentences, sharpened(2**log))
            error = or_intact(edit, partial(specimen.error, sentences))
            return sharpness(error, counts) < wanted

        return float(2 ** bisected(too_blunt, -2.0, 2.0))

    def taught_reach(self, stages: Sequence[str]) -> list[list[float]]:
        """L_x after each stage, seed by seed."""
        rows = [self.crossings(self.after(stage)) for stage in stages]
        return [list(seed) for seed in zip(*rows, strict=True)]

    def stage_factor(
        self, stages: Sequence[str], lengths: Sequence[int]
    ) -> list[float]:
        """The least over stages of L_x over the stage's length."""
        return [
            min(reach / n for reach, n in zip(seed, lengths, strict=True))
            for seed in self.taught_reach(stages)
        ]

    def least_rise(self, stages: Sequence[str]) -> list[float]:
        """The least over stages of log2 of L_x over that of the stage before."""
        most = self.farthest_length
        found = []
        for seed in self.taught_reach(stages):
            pairs = pairwise(seed)
            # Where both are censored nothing can rise.
            rises = [math.log2(b / a) for a, b in pairs if a < most]
            found += [min(rises)] if rises else []
        if not found:
            raise NotTested("every model solves the longest chains without rounds")
        return found

    @torch.no_grad()
    def label_consistency(self, length: int, stage: str = BASE) -> list[float]:
        """Share of steps at which an annotator's value is g of its own value before."""
        found = []
        for s in self.after(stage):
            drawn = s.sentences(length, self.config.test.n_labelled)
            sentences = move(drawn, self.device)
            table, words = table_of(s.action).to(self.device), s.model.vocabulary
            written = verified_rollout(s.model, sentences, words, table)
            image = table[sentences.actions, written.values[:, :-1]]
            found.append(float((image == written.values[:, 1:]).double().mean()))
        return found


def lengths_to(first: int, last: int) -> list[int]:
    """Lengths a factor of sqrt 2 apart, both ends included.

    >>> lengths_to(5, 40)
    [5, 7, 10, 14, 20, 28, 40]
    """
    found, length = [first], first * STEP
    while round(length) < last:
        found.append(round(length))
        length *= STEP
    return [*found, last] if last > first else [first]


def misdirected(specimen: Specimen, factor: float, batch: Batch) -> Rule:
    """Scores that grow by another key's: the next one of the same block.

    s(k) + (factor - 1) s(k'), where k' is the next predicate, or the next answer that
    the query sees.
    """
    with record(specimen.model, [PATTERN.site]) as seen:
        specimen.model(batch.tokens)
    pattern = seen[PATTERN.site]
    n_steps, keys = pattern.shape[2], torch.arange(pattern.shape[3])
    query = torch.arange(n_steps)[:, None]
    n_predicates = len(keys) - n_steps
    predicates = (keys[:n_predicates] + 1) % n_predicates
    answers = (keys[n_predicates:] - n_predicates + 1) % (query + 1) + n_predicates
    order = torch.cat([predicates.expand(n_steps, -1), answers], 1)
    logs = pattern.clamp_min(1e-30).log()
    wrong = logs.gather(-1, order.to(pattern.device).expand_as(pattern))
    odds = torch.where(pattern > 0, (logs + (factor - 1) * wrong).exp(), 0.0)
    return Put(odds / odds.sum(-1, keepdim=True))
