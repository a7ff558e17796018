"""What all evidence of the bridge study shares: the run, its models, their answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from trained.arm import Arm
from trained.bridge.arms import Recipe, arms, recipes, world_of
from trained.bridge.config import Config
from trained.bridge.data import World
from trained.config import from_dict
from trained.store import Run
from trained.task import Batch
from trained.training import restore


@dataclass(frozen=True)
class Specimen:
    """One trained model and the world it was trained in."""

    recipe: Recipe
    seed: int
    world: World
    model: nn.Module


@dataclass(frozen=True)
class Context:
    """A trained run of the bridge study."""

    run: Run
    _loaded: dict[Recipe, list[Specimen]] = field(default_factory=dict)

    @cached_property
    def config(self) -> Config:
        """The run's configuration."""
        return from_dict(Config, self.run.manifest["config"])

    @cached_property
    def _arms(self) -> dict[str, Arm]:
        return {arm.name: arm for arm in arms(self.config)}

    def has(self, recipe: Recipe) -> bool:
        """Whether the run trains this arm."""
        return recipe in recipes(self.config)

    def specimens(self, recipe: Recipe) -> list[Specimen]:
        """The trained models of an arm, one per seed."""
        if recipe not in self._loaded:
            seeds = self.run.record(recipe.name)["seeds"]
            self._loaded[recipe] = [self._load(recipe, seed) for seed in seeds]
        return self._loaded[recipe]

    def _load(self, recipe: Recipe, seed: int) -> Specimen:
        model = restore(self.run, self._arms[recipe.name], seed)
        return Specimen(recipe, seed, world_of(self.config, recipe, seed), model)

    def each(
        self, recipe: Recipe, quantity: Callable[[Specimen], float]
    ) -> list[float]:
        """A quantity of every seed of an arm."""
        return [quantity(specimen) for specimen in self.specimens(recipe)]


@torch.no_grad()
def last_logits(model: nn.Module, batch: Batch) -> Float[Tensor, "batch d_vocab"]:
    """The logits after the last token of every prompt."""
    return model(batch.tokens)[:, -1]


def hits(
    logits: Float[Tensor, "batch d_vocab"], targets: Tensor, among: slice = slice(None)
) -> Float[Tensor, " batch"]:
    """1 where the best token, among some, is the target, else 0."""
    best = logits[:, among].argmax(-1) + (among.start or 0)
    return (best == targets).double()


def share(
    logits: Float[Tensor, "batch d_vocab"], targets: Tensor, among: slice = slice(None)
) -> float:
    """Share of prompts whose best token, among some, is the target, in [0, 1]."""
    return float(hits(logits, targets, among).mean())


def ood(specimen: Specimen) -> float:
    """Accuracy on two-hop queries over the whole vocabulary, in [0, 1]."""
    batch = specimen.world.two_hop()
    return share(last_logits(specimen.model, batch), batch.targets)


def ood_obj(specimen: Specimen) -> float:
    """Accuracy on two-hop queries among the objects only; chance is 1 / N."""
    batch = specimen.world.two_hop()
    objects = specimen.world.object_tokens
    return share(last_logits(specimen.model, batch), batch.targets, objects)


def bridge_answers(specimen: Specimen) -> float:
    """Share of two-hop answers that are bridges, in [0, 1]."""
    best = last_logits(specimen.model, specimen.world.two_hop()).argmax(-1)
    span = specimen.world.bridge_tokens
    return float(((best >= span.start) & (best < span.stop)).double().mean())


def difference(first: list[float], second: list[float]) -> list[float]:
    """Seed by seed; seeds that only one arm has are left out."""
    return [a - b for a, b in zip(first, second, strict=False)]
