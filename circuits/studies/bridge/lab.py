"""Trained bridge models, opened for measuring, and the program they are held against.

`lab.specimens(recipe)` gives an arm's models, seed by seed, each with its world and its
quantities; `lab.instead(task="none")` is the same lab with another arm wherever an arm
is asked for: a null; `lab.wired(build)` has models whose weights are set by hand.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from circuits.claims import NotTested
from circuits.lab import Lab, once
from probes.weights import nuclear_norm
from trained.arm import SHUFFLED
from trained.bridge.arms import world_of
from trained.bridge.config import Config, Recipe, recipes
from trained.bridge.program import Norm, Optimum, Tilted, one_hop_constraints, solve
from trained.bridge.symmetric import (
    Symmetric,
    expand,
    random_symmetric,
    solve_symmetric,
)
from trained.seeding import generator
from trained.store import Run
from trained.task import Batch

from .specimen import TrainedEmbedding
from .states import TrainedGpt

if TYPE_CHECKING:
    from circuits.study import Study

Curve = Float[Tensor, " record"]

Wiring = Callable[[Config, Recipe, int], nn.Module | None]
"""(configuration, recipe, seed) -> a model in an arm's place, if there is one."""

DRAWN = range(4, 13)
"""Sizes of the program that a run may draw."""


class BridgeLab(Lab):
    """A trained run of the bridge study."""

    config: Config

    def __init__(self, study: "Study", run: Run) -> None:
        super().__init__(study, run)
        self.changes: dict[str, Any] = {}
        self.wiring: Wiring | None = None
        self.pairing = "alignment"

    def instead(self, **changes: Any) -> "BridgeLab":
        """The null in which arms differ in some fields of their recipes."""
        return self.derived(repr(changes), lambda: self.other(changes=changes))

    def mispaired(self) -> "BridgeLab":
        """The null in which the course of alignment is that with wrong bridges."""
        return self.derived("mispaired", lambda: self.other(pairing="mispaired"))

    def wired(self, wiring: Wiring) -> "BridgeLab":
        """The lab with other models in place of the trained ones, and no others."""
        return self.other(wiring=wiring)

    @once
    def model(self, arm: str, seed: int, step: int | None = None) -> Any:
        """One model for measuring: trained, untrained, or set by hand."""
        if self.wiring is None or not self.trained:
            return super().model(arm, seed, step)
        found = self.wiring(self.config, self._recipe(arm), seed)
        if found is None or step is not None:
            raise NotTested(f"arm {arm} was not set by hand")
        return found.eval().requires_grad_(False).to(self.device)

    def metrics(self, arm: str) -> dict[str, Tensor]:
        """What was recorded while an arm trained."""
        if self.wiring is not None:
            raise NotTested("a model set by hand has no course of training")
        return super().metrics(arm)

    @once
    def specimens(self, arm: Recipe | str, step: int | None = None) -> Sequence[Any]:
        """The models of an arm, seed by seed: `TrainedEmbedding` or `TrainedGpt`.

        Args:
            arm: its recipe, or its name.
            step: a saved one; None for the last.
        """
        recipe = self._recipe(self.arm(arm).name) if isinstance(arm, str) else arm
        chosen = replace(recipe, **self.changes)
        kind = TrainedGpt if chosen.model == "gpt" else TrainedEmbedding
        return [
            kind(self.config, chosen, seed, self.model(chosen.name, seed, step))
            for seed in self.seeds_of(chosen.name)
        ]

    def has(self, recipe: Recipe) -> bool:
        """Whether the run trains this arm, and has done so."""
        name = recipe.name + self.twin
        return name in self.arms and self.run.is_done(name)

    def examples(self, arm: str, seed: int) -> Batch:
        """The two-hop queries of an arm."""
        world = world_of(self.config, self._recipe(self.arm(arm).name), seed)
        return world.two_hop().to(self.device)

    def _recipe(self, arm: str) -> Recipe:
        """Of an arm or of its shuffled twin."""
        name = arm.removesuffix(SHUFFLED)
        return next(r for r in recipes(self.config) if r.name == name)

    def half_way(self, recipe: Recipe, name: str) -> list[float]:
        """The first recorded step at which a metric has half its last value, by seed.

        Undefined where that is not above 0.
        """
        metrics = self._course(recipe)
        steps = metrics["step"].float()
        return [half_way(steps, curve) for curve in metrics[name]]

    def together(self, recipe: Recipe, one: str, other: str) -> list[float]:
        """Rank correlation of two metrics over training, seed by seed, in [-1, 1]."""
        from scipy.stats import spearmanr

        metrics = self._course(recipe)
        pairs = zip(metrics[one].tolist(), metrics[other].tolist(), strict=True)
        return [float(spearmanr(*pair).statistic) for pair in pairs]

    def _course(self, recipe: Recipe) -> dict[str, Tensor]:
        """The metrics of an arm; `alignment` as this lab pairs."""
        metrics = self.metrics(replace(recipe, **self.changes).name)
        return {**metrics, "alignment": metrics[self.pairing]}

    @property
    def drawn_size(self) -> int:
        """An N of the program that no list has chosen: drawn by the run's seeds."""
        source = generator(sum(self.seeds), "bridge", "size")
        others = sorted({*DRAWN} - {*self.config.theory.sizes})
        return others[int(torch.randint(len(others), (), generator=source))]

    def optimum(
        self,
        size: int,
        complexity: int = 1,
        *,
        identity: bool = True,
        norm: Norm = "nuclear",
    ) -> Optimum:
        """The solved program of a training set; the same in every lab."""
        return _solved(size, complexity, identity, norm)

    def symmetric(self, size: int, *, identity: bool = True) -> Symmetric:
        """The solved program in its symmetric family; the same in every lab."""
        return solve_symmetric(size, identity=identity)

    def formula_error(self, size: int, *, constant: bool = True) -> float:
        """Relative error of the closed nuclear norm on a random symmetric Z.

        Args:
            size: N.
            constant: whether the formula knows of the constant blocks Q.
        """
        source = generator(sum(self.seeds), "bridge", "symmetric", size)
        drawn = random_symmetric(size, generator=source)
        whole = float(nuclear_norm(expand(drawn)))
        known = drawn if constant else replace(drawn, constant=0 * drawn.constant)
        return abs(known.objective / whole - 1)

    def tilted(self, size: int) -> Tilted:
        """Optima without identity that random tilts choose among all optima."""
        theory, seed = self.config.theory, sum(self.seeds)
        return _tilted(size, theory.tilts, theory.tilt, seed)

    def cosines(
        self,
        recipe: Recipe,
        *,
        identity: bool,
        norm: Norm = "nuclear",
        step: int | None = None,
    ) -> list[float]:
        """Of an arm's Z with an optimum of the program, seed by seed, in [-1, 1]."""
        size = self.config.direction.n_subjects
        target = self.optimum(size, identity=identity, norm=norm).solution.matrix
        return [s.cosine(target) for s in self.specimens(recipe, step)]


@cache
def _solved(size: int, complexity: int, identity: bool, norm: Norm) -> Optimum:
    facts = one_hop_constraints(size, complexity, identity=identity)
    return Optimum(size, complexity, identity, solve(facts, norm=norm))


@cache
def _tilted(size: int, tilts: int, weight: float, seed: int) -> Tilted:
    source = generator(seed, "bridge", "tilts", size)
    plain = _solved(size, 1, False, "nuclear")
    return plain.tilted(tilts, weight, generator=source)


def half_way(steps: Curve, curve: Curve) -> float:
    """The first recorded step at which a curve is at least half its last value.

    >>> half_way(torch.tensor([0.0, 4.0, 8.0]), torch.tensor([0.1, 0.6, 0.8]))
    4.0
    """
    last = float(curve[-1])
    if not last > 0:
        return math.nan
    return float(steps[(curve >= last / 2).nonzero()[0, 0]])
