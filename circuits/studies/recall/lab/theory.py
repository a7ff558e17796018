"""The half of the lab that stands on mathematics: the memory and Algorithm 1."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from circuits.claims import NotTested
from circuits.conditions import Share
from circuits.lab import Lab, once
from circuits.study import Study
from probes.attention import rest_mass, within_pair_ratio
from trained.recall.arms import settings
from trained.recall.config import Config
from trained.recall.model import RecallModel, constructed_model, two_step_loss
from trained.recall.slopes import (
    lead,
    ratio_rises,
)
from trained.recall.task import Episodes, Vocabulary
from trained.recall.theory import (
    hessian,
    relation_accuracy,
    relation_loss,
)
from trained.recall.theory_arms import NOTHING
from trained.seeding import generator
from trained.store import Run

from . import memory
from .optimum import (
    ACROSS,
    FORMS,
    SADDLE,
    counts,
    critical_points,
    curvature_error,
    least_loss,
    optimum,
)

PAIRS = torch.tensor([[0, 1], [2, 3]])

AnyLab = TypeVar("AnyLab", bound="TheoryLab")


Build = Callable[[Any, int, int | None], nn.Module]
"""(lab, seed, saved step) -> what training ended at, we pretend."""


class TheoryLab(Lab):
    """What needs no trained W_KQ; lists have one value per seed, or per draw."""

    config: Config

    def __init__(self, study: Study, run: Run) -> None:
        super().__init__(study, run)
        self.settings = settings(self.config)
        self.early = False
        """Whether Algorithm 1 is looked at where its first stage ends."""
        self.spoiled = False
        """Whether the constructed memories' values are shuffled."""
        self.builds: Mapping[str, Build] = {}
        """Arms whose models are not the run's; see `with_models`."""

    def with_models(self: AnyLab, builds: Mapping[str, Build]) -> AnyLab:
        """A lab some of whose arms ended, we pretend, in other models."""
        return self.other(builds=builds)

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """The seeds that an arm was trained with."""
        given = arm + self.twin in self.builds
        return self.seeds if given else super().seeds_of(arm)

    def model(self, arm: str, seed: int, step: int | None = None) -> Any:
        """One model, of the run or put in its place; untrained, what it starts from."""
        # A null that is a twin of the arm was not put in place: it is the run's own.
        name = arm + self.twin
        if name not in self.builds:
            return super().model(arm, seed, step)
        if not self.trained:
            return self.arms[name].build(seed).requires_grad_(False)
        return self.builds[name](self, seed, step).requires_grad_(False)

    def after_stage_one(self: AnyLab) -> AnyLab:
        """A null: Algorithm 1 without its perturbation and what follows."""
        return self.derived("stage one", lambda: self.other(early=True))

    def spoiled_memory(self) -> "TheoryLab":
        """A null: the memory's values are assigned to the wrong keys."""
        return self.derived("spoiled memory", lambda: self.other(spoiled=True))

    @once
    def episodes(self, arm: str, seed: int) -> Episodes:
        """Unseen episodes of an arm's table."""
        return self.settings[arm].unseen(self.config.n_test, seed)

    # The constructed memory.

    def _memories(self, seed: int) -> list[tuple[Tensor, RecallModel]]:
        """Of every shape of table in the run the first."""
        k = self.config.n_examples
        tables: dict[torch.Size, Tensor] = {}
        for setting in self.settings.values():
            table = setting.table(seed)
            tables.setdefault(table.shape, table)
        made = [
            (table, constructed_model(table, k, seed, dtype=torch.float64))
            for table in tables.values()
            if table.shape[1] > k
        ]
        if self.spoiled:
            return [(table, memory.shuffled(model, seed)) for table, model in made]
        return made

    @once
    def _facts(self, seed: int) -> dict[str, float]:
        return memory.fact_measures(self._memories(seed))

    def facts(self, name: str) -> list[float]:
        """`recalled`, `right`, `mean right` or `wrong`: see `fact_measures`."""
        return [self._facts(seed)[name] for seed in self.seeds]

    def formula_error(self) -> list[float]:
        """Largest error of the closed forms of the logits; of spoiled ones the least.

        That every spoiled memory misses is what the null has to show.
        """
        worst = min if self.spoiled else max
        return [
            worst(memory.formula_error(t, m, seed) for t, m in self._memories(seed))
            for seed in self.seeds
        ]

    def largest_gradient(self, *, steps: int) -> list[float]:
        """Largest entry of the initial gradient in W_KQ.

        Args:
            steps: 1 for the answer's loss without a relation, 2 for the paper's.
        """
        return [self._gradient(seed, steps) for seed in self.seeds_of("full-affine")]

    def _gradient(self, seed: int, steps: int) -> float:
        model = cast(RecallModel, self.arms["full-affine"].build(seed))
        episodes = self.episodes("full-affine", seed)
        words = Vocabulary.of(episodes.table)
        if steps == 2:
            t = self.config.temperature
            loss = two_step_loss(model, episodes.steps(), words=words, temperature=t)
        else:
            logits = model(episodes.relation_step().tokens)[:, 0, words.answers]
            loss = F.cross_entropy(logits, episodes.answers[:, -1])
        (gradient,) = torch.autograd.grad(loss, model.W_KQ)
        return float(gradient.abs().max())

    # Algorithm 1.

    @once
    def warmup(self, temperature: float, *, symmetric: bool = False) -> "Descent":
        """The draws at one temperature, three subjects.

        Args:
            temperature: one of `warmup.temperatures`, or `warmup.hot`.
            symmetric: those that were perturbed equally in both pairs.
        """
        warmup = self.config.warmup
        heats = (*warmup.temperatures, warmup.hot)
        if temperature not in heats:
            raise NotTested(f"no warm-up at T={temperature:g}")
        place = heats.index(temperature), int(symmetric)
        step = warmup.saddle if self.early else None
        (seed,) = self.seeds_of("warmup")[:1]
        theta = self.model("warmup", seed, step).theta.detach().cpu()
        return Descent(temperature, theta.unflatten(0, (len(heats), 2, -1))[place])

    def each_temperature(self, quantity: str) -> list[float]:
        """A quantity of `Descent` for the first draw, one value per temperature.

        For stage 1, which has no randomness: its draws are all equal, and the
        temperatures are the replicates.
        """
        firsts = (self.warmup(t).first() for t in self.config.warmup.temperatures)
        return [value for first in firsts for value in getattr(first, quantity)()]

    def path_rises(self, temperature: float, *, bare: bool = False) -> list[float]:
        """Share of the recorded steps of stage 2, draw by draw, where psi rises.

        Args:
            temperature: of the draws.
            bare: without the last bit of attention outside the pairs.
        """
        course, warmup = self.metrics("warmup"), self.config.warmup
        name = f"{'bare' if bare else 'psi'}{temperature:g}"
        later = course["step"] > warmup.saddle
        past, rises = (
            _digits(course[f"{name}-{what}"][0, later], warmup.draws)
            for what in ("past", "rises")
        )
        spoken = past.any(0)
        if not spoken.any():
            raise NotTested("no recorded step of a path is past the escape")
        return _listed((rises.sum(0) / past.sum(0))[spoken])

    def improvement(self, temperature: float) -> list[float]:
        """The least loss that a search finds minus that of each draw's limit."""
        best = least_loss(temperature, self.config.warmup.starts, self.seeds[0])
        return [best - loss for loss in self.warmup(temperature).limit().loss()]

    def critical_points(self, temperature: float) -> list[float]:
        """Where the loss is stationary and below log 2 on the pairwise line."""
        return [float(critical_points(temperature))]

    @once
    def _rising(self, temperature: float, seed: int) -> tuple[float, float]:
        return rising_shares(temperature, self.config.warmup.points, seed)

    def ratio_rises(self, temperature: float, *, condition: bool) -> list[float]:
        """Share of random attentions where psi rises, by Lemma 8's condition."""
        place = 0 if condition else 1
        return [self._rising(temperature, seed)[place] for seed in self.seeds]

    def optimum(self, temperature: float) -> float:
        """The lighter weight a*(T) of the exact loss, three subjects."""
        return optimum(temperature)

    def curvature_errors(self, *, printed: bool = False) -> list[float]:
        """Relative error of a formula for the saddle's curvature, by temperature."""
        heats = self.config.warmup.temperatures
        return [curvature_error(t, printed=printed) for t in heats]


@dataclass(frozen=True)
class Descent:
    """The scores of EoS that the draws of one temperature have reached."""

    temperature: float
    theta: Float[Tensor, "draw key"]

    def first(self) -> "Descent":
        """The first draw alone."""
        return Descent(self.temperature, self.theta[:1])

    @cached_property
    def attention(self) -> Float[Tensor, "draw key"]:
        """Attention of EoS."""
        return self.theta.softmax(-1)

    def from_saddle(self) -> list[float]:
        """Largest deviation from (1/4, 1/4, 1/4, 1/4, 0, 0)."""
        return _listed((self.attention - SADDLE.softmax(0)).abs().amax(1))

    def loss(self) -> list[float]:
        """L1; the true and the confusing relation tie at log 2."""
        several = counts().expand(len(self.theta), -1)
        return _listed(
            relation_loss(self.attention, several, FORMS, temperature=self.temperature)
        )

    def accuracy(self) -> list[float]:
        """Accuracy on the relation, ties split."""
        several = counts().expand(len(self.theta), -1)
        return _listed(
            relation_accuracy(self.attention, several, FORMS, tolerance=1e-6)
        )

    def ratio(self) -> list[float]:
        """The largest ratio inside a pair."""
        return _listed(within_pair_ratio(self.attention, PAIRS))

    def rest(self) -> list[float]:
        """What the query and EoS are left with."""
        return _listed(rest_mass(self.attention, PAIRS))

    def from_quarter(self) -> list[float]:
        """|v1 + v2 - v3 - v4| / 4, the distance of the pairs' weights from 1/4."""
        first, second = self.attention[:, :2], self.attention[:, 2:4]
        return _listed((first.sum(1) - second.sum(1)).abs() / 4)

    def from_optimum(self) -> list[float]:
        """Distance of the lighter weight from the minimiser of the exact loss."""
        best = optimum(self.temperature)
        return [abs(weight - best) for weight in self.lighter()]

    def limit(self) -> "Descent":
        """Without what is left outside the pairs, which falls like 1 / steps only."""
        bare = self.theta.clone()
        bare[:, 4:] = NOTHING
        return Descent(self.temperature, bare)

    def heavy_first(self) -> list[Share]:
        """Whether the first pair is the heavy one."""
        first = self.attention[:, 0] > self.attention[:, 2]
        return [Share(int(heavy), 1) for heavy in first]

    def lighter(self) -> list[float]:
        """The lighter pair's weight, per token."""
        return _listed(torch.minimum(self.attention[:, 0], self.attention[:, 2]))

    def least_curvature(self) -> list[float]:
        """The least eigenvalue of the Hessian of L1."""
        return _listed(torch.stack([torch.linalg.eigvalsh(h)[0] for h in self._bends]))

    def ascends(self) -> list[float]:
        """The curvature along (1, -1, -1, 1, 0, 0)/2, where pairs are crossed."""
        return _listed(torch.stack([ACROSS @ h @ ACROSS for h in self._bends]))

    @property
    def _bends(self) -> list[Float[Tensor, "key key2"]]:
        return [hessian(x, counts(), temperature=self.temperature) for x in self.theta]

    def lead(self) -> list[float]:
        """l(r1) - sum p l, which is positive past the escape."""
        return _listed(lead(self.theta, counts(), temperature=self.temperature))


def rising_shares(temperature: float, n_points: int, seed: int) -> tuple[float, float]:
    """Share of random attentions where the largest within-pair ratio rises.

    Returns:
        Of those that meet Lemma 8's condition, and of those that do not.
    """
    source = generator(seed, "lemma 8")
    noise = torch.rand(n_points, 4, generator=source, dtype=torch.float64)
    nothing = torch.full((n_points, 2), NOTHING, dtype=torch.float64)
    theta = torch.cat([(-noise.log()).log(), nothing], 1)
    rises = ratio_rises(theta, counts(), temperature=temperature).double()
    condition = lead(theta, counts(), temperature=temperature) > 0
    return float(rises[condition].mean()), float(rises[~condition].mean())


def _digits(
    numbers: Float[Tensor, " record"], count: int
) -> Bool[Tensor, "record draw"]:
    """The binary digits of whole numbers, the last one first."""
    return (numbers.long()[:, None] >> torch.arange(count)) % 2 == 1


def _listed(values: Float[Tensor, " draw"]) -> list[float]:
    return [float(value) for value in values]
