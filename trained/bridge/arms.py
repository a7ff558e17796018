"""What the bridge study trains: Emb-MLP and a small GPT, with and without identity.

Arms that differ in one thing share everything else: the world, the initial weights and
the position offsets of a seed depend on the seed and the complexity only.
"""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from trained.arm import Arm, Optimiser, Quantity, Stage, adam, gradient_descent
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator
from trained.task import Batch

from .config import N_HEADS, Config, Variant
from .data import (
    Facts,
    Maps,
    World,
    covered_bridges,
    cycle,
    identity_labels,
    make_world,
    one_hop_facts,
)
from .embmlp import EmbMLP, Factors
from .scores import accuracy, fact_loss, nearest_bridge, net_alignment

Task = Literal["identity", "none", "half", "permuted"]
"""The zero-hop task: [b] -> b, nothing, [b] -> b for a random half of the bridges, or
[b_j] -> b_{s(j)} for a permutation s that is one cycle."""

DIRECTION_SIZE = 10
"""N of the arms whose direction is compared with the program's optimum."""
EMBEDDING_STEPS, DIRECTION_STEPS = 800, 4000
MAX_OFFSET = 2
N_CONTEXT = 6


@dataclass(frozen=True)
class Recipe:
    """One arm as data; its name says how it differs from the others."""

    model: Literal["embedding", "direction", "gpt"]
    complexity: int = 1
    task: Task = "identity"
    maps: Maps | None = None
    """None for the configuration's."""
    factors: Factors = "two"
    gamma: float | None = None
    """None for the configuration's small initialisation."""
    std: float | None = None
    """Instead of gamma."""
    decay: float | None = None
    """Weight decay, in a longer run; None for the configuration's."""
    head: Literal["untied", "tied"] = "untied"
    offset: Literal["random", "none"] = "random"

    @property
    def name(self) -> str:
        """For example `gpt-k3-identity-gamma0.5`."""
        parts = [
            f"{self.model}-k{self.complexity}-{self.task}",
            "unfactorised" if self.factors == "one" else "",
            self.maps or "",
            "" if self.gamma is None else f"gamma{self.gamma:g}",
            "" if self.std is None else f"std{self.std:g}",
            "" if self.decay is None else f"decay{self.decay:g}",
            "" if self.head == "untied" else self.head,
            "" if self.offset == "random" else "fixed",
        ]
        return "-".join(part for part in parts if part)


def embedding(complexity: int = 1, task: Task = "identity") -> Recipe:
    """Emb-MLP trained with Adam."""
    return Recipe("embedding", complexity, task)


def gpt(complexity: int = 1, task: Task = "identity") -> Recipe:
    """The small-initialisation GPT with an untied head."""
    return Recipe("gpt", complexity, task)


def tied(complexity: int = 1, task: Task = "identity") -> Recipe:
    """The GPT with a tied head: half the rate, twice the steps, no offset."""
    return Recipe("gpt", complexity, task, head="tied", offset="none")


def main_recipes(config: Config) -> list[Recipe]:
    """The arms that gated claims rest on, and the sweep of Figure 2."""
    both: tuple[Task, ...] = ("identity", "none")
    several = config.complexity
    others = sorted(set(config.sweep) - {1, several}, reverse=True)
    # The dearest first, so that processes that share the arms end together.
    found = [gpt(kappa, task) for kappa in (*others, several) for task in both]
    found += [replace(gpt(several), gamma=gamma) for gamma in config.gammas]
    found += [gpt(1, task) for task in (*both, "half", "permuted")]
    found += [Recipe("direction", task=task) for task in both]
    complexities = sorted({1, several, *config.embedding_sweep}, reverse=True)
    found += [embedding(kappa, task) for kappa in complexities for task in both]
    return [
        *found,
        replace(embedding(several), maps="degenerate"),
        replace(embedding(), factors="one"),
    ]


def variant_recipes(config: Config) -> list[Recipe]:
    """The arms that are only reported."""
    both: tuple[Task, ...] = ("identity", "none")
    one, several = gpt(), gpt(config.complexity)
    standard = replace(one, gamma=config.standard_gamma)
    others = sorted(set(config.sweep) - {1, several.complexity})
    by_name: dict[Variant, list[Recipe]] = {
        "tied": [tied(1, task) for task in (*both, "permuted")],
        "tied_several": [tied(config.complexity, task) for task in both],
        "standard": [
            *(replace(one, gamma=gamma) for gamma in config.gammas),
            *(replace(arm, std=0.02) for arm in (one, several)),
            replace(one, task="none", std=0.02),
            *(replace(gpt(k), gamma=config.standard_gamma) for k in others),
        ],
        "decay": [replace(standard, decay=w) for w in (0.0, *config.weight_decays)],
        "fixed": [replace(standard, offset="none"), replace(one, offset="none")],
        "random": [replace(several, task=task, maps="random") for task in both],
        "dose": [replace(several, task=task) for task in ("half", "permuted")],
    }
    return [recipe for name in config.variants for recipe in by_name[name]]


def recipes(config: Config) -> list[Recipe]:
    """Every arm."""
    return variant_recipes(config) + main_recipes(config)


def arms(config: Config) -> tuple[Arm, ...]:
    """What the study trains."""
    limit = config.variant_seeds
    main = [_arm(config, recipe, None) for recipe in main_recipes(config)]
    extra = [_arm(config, recipe, limit) for recipe in variant_recipes(config)]
    return (*extra, *main)


def world_of(config: Config, recipe: Recipe, seed: int) -> World:
    """The world of an arm's seed."""
    size = DIRECTION_SIZE if recipe.model == "direction" else config.n_subjects
    source = generator(seed, "bridge", "world", recipe.complexity)
    # The convex program that the direction is compared with knows shifts only.
    maps = "shift" if recipe.model == "direction" else recipe.maps or config.maps
    return make_world(size, recipe.complexity, maps, generator=source)


def covered(config: Config, recipe: Recipe, seed: int) -> Bool[Tensor, " pair"]:
    """Which bridges of an arm's seed have an identity label that is their own."""
    shares = {"identity": config.identity, "half": 0.5, "none": 0.0, "permuted": 0.0}
    source = generator(seed, "bridge", "covered", recipe.complexity)
    world = world_of(config, recipe, seed)
    return covered_bridges(world, shares[recipe.task], generator=source)


def permutation(config: Config, recipe: Recipe, seed: int) -> Int[Tensor, " pair"]:
    """The s of the permuted identity task, [b_j] -> b_{s(j)}."""
    world = world_of(config, recipe, seed)
    return cycle(
        world.n_bridges, generator=generator(seed, "bridge", "cycle", recipe.complexity)
    )


def model_of(config: Config, recipe: Recipe, seed: int) -> nn.Module:
    """The model of an arm's seed before training."""
    world = world_of(config, recipe, seed)
    source = generator(seed, "bridge", recipe.model, "initial", recipe.complexity)
    if recipe.model != "gpt":
        # Wide enough for the optimum without identity, of rank 2N - 1.
        width = max(64, 2 * world.n_subjects)
        return EmbMLP(world, d_model=width, factors=recipe.factors, generator=source)
    gamma = recipe.gamma or config.gamma
    sizes = DecoderConfig(
        d_vocab=world.d_vocab,
        d_model=config.d_model,
        n_layers=config.n_layers,
        n_heads=N_HEADS,
        n_ctx=N_CONTEXT,
        head=recipe.head,
        gamma=None if recipe.std else gamma,
        init_std=recipe.std,
    )
    return Decoder(sizes, generator=source)


def training_facts(config: Config, recipe: Recipe, seed: int) -> Facts:
    """What an arm's seed is trained on, at offset 0."""
    world = world_of(config, recipe, seed)
    labels = identity_labels(world, covered(config, recipe, seed))
    if recipe.task == "permuted":
        labels = world.bridge[permutation(config, recipe, seed)]
    return one_hop_facts(world, labels)


def held_out(config: Config, recipe: Recipe, seed: int) -> dict[str, Batch]:
    """The prompts that metrics are measured on."""
    world = world_of(config, recipe, seed)
    return {
        "hop1": world.hop1(),
        "hop2": world.hop2(),
        "zero_hop": world.zero_hop(),
        "two_hop": world.two_hop(),
    }


def _arm(config: Config, recipe: Recipe, max_seeds: int | None) -> Arm:
    stage = _stage(config, recipe)
    objects = world_of(config, recipe, 0).object_tokens
    metrics: dict[str, Quantity] = {
        "ood": partial(accuracy, name="two_hop"),
        "ood_obj": partial(accuracy, name="two_hop", among=objects),
        "hop2": partial(accuracy, name="hop2"),
    }
    if recipe.model == "gpt":
        metrics |= {"nearest": nearest_bridge, "alignment": net_alignment}
    return Arm(
        name=recipe.name,
        build=partial(model_of, config, recipe),
        stages=(stage,),
        metrics=metrics,
        held_out=partial(held_out, config, recipe),
        record_every=_record_every(config, recipe, stage.steps),
        max_seeds=max_seeds,
    )


def _record_every(config: Config, recipe: Recipe, steps: int) -> int:
    """Steps between records; few where a claim reads the order of events."""
    ordered = recipe == gpt(config.complexity, recipe.task)
    every = min(steps // 30, 50) if ordered else steps // 3
    return max(1, every)


def _stage(config: Config, recipe: Recipe) -> Stage:
    facts = cache(partial(training_facts, config, recipe))
    steps, optimiser = _schedule(config, recipe)
    moving = recipe.model == "gpt" and recipe.offset == "random"

    def shifted(seed: int, step: int) -> Facts:
        fixed = facts(seed)
        source = generator(seed, "bridge", "offset", recipe.complexity, step)
        shape = fixed.offset.shape
        offset = torch.randint(MAX_OFFSET + 1, shape, generator=source)
        return fixed._replace(offset=offset)

    return Stage(
        name="facts",
        steps=steps,
        optimiser=optimiser,
        loss=fact_loss,
        data=shifted if moving else lambda seed, _step: facts(seed),
        draw="each step" if moving else "once",
    )


def _schedule(config: Config, recipe: Recipe) -> tuple[int, Optimiser]:
    """Steps and optimiser of Section 5; the direction takes half the steps, doubled."""
    if recipe.model == "embedding":
        return EMBEDDING_STEPS, adam(0.01)
    if recipe.model == "direction":
        return DIRECTION_STEPS, gradient_descent(2.0, weight_decay=1e-3)
    warmup = min(50, config.steps // 2)
    if recipe.head == "tied":
        slow = Optimiser("adamw", config.lr / 2, config.weight_decay, warmup=warmup)
        return 2 * config.steps, slow
    decay = config.weight_decay if recipe.decay is None else recipe.decay
    steps = config.steps if recipe.decay is None else config.steps * 10 // 3
    return steps, Optimiser("adamw", config.lr, decay, warmup=warmup)
