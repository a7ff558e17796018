"""What the bridge study trains: Emb-MLP and a small GPT, with and without identity.

Arms that differ in one thing share everything else: the world, the initial weights and
the position offsets of a seed depend on the seed and the complexity only.
"""

from functools import cache, partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from trained.arm import (
    Arm,
    Optimiser,
    Quantity,
    Stage,
    adam,
    gradient_descent,
    shuffled,
)
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator
from trained.task import Batch

from .config import Config, Recipe, recipes, twin_recipes, untied
from .model import EmbMLP, accuracy, fact_loss, nearest_bridge, net_alignment
from .task import (
    Facts,
    World,
    covered_bridges,
    cycle,
    identity_labels,
    make_world,
    one_hop_facts,
    shuffle,
)


def arms(config: Config) -> tuple[Arm, ...]:
    """What the study trains."""
    found = {recipe: _arm(config, recipe) for recipe in recipes(config)}
    twins = (shuffled(found[recipe], shuffle) for recipe in twin_recipes(config))
    return (*found.values(), *twins)


def world_of(config: Config, recipe: Recipe, seed: int) -> World:
    """The world of an arm's seed."""
    is_direction = recipe.model == "direction"
    size = config.direction.n_subjects if is_direction else config.n_subjects
    source = generator(seed, "bridge", "world", recipe.complexity)
    # The convex program that the direction is compared with knows shifts only.
    maps = "shift" if is_direction else recipe.maps or config.maps
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
        return EmbMLP(
            world,
            d_model=max(config.embedding.width, 2 * world.n_subjects),
            std=config.embedding.std,
            factors=recipe.factors,
            generator=source,
        )
    gpt = config.gpt
    sizes = DecoderConfig(
        d_vocab=world.d_vocab,
        d_model=gpt.d_model,
        n_layers=gpt.n_layers,
        n_heads=gpt.n_heads,
        n_ctx=gpt.n_context,
        head=recipe.head,
        gamma=None if recipe.std else recipe.gamma or gpt.gamma,
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


def _arm(config: Config, recipe: Recipe) -> Arm:
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
    )


def _record_every(config: Config, recipe: Recipe, steps: int) -> int:
    """Steps between records; few where a claim reads the order of events."""
    ordered = recipe == untied(config.complexity, recipe.task)
    return config.gpt.record_every if ordered else max(1, steps // 3)


def _stage(config: Config, recipe: Recipe) -> Stage:
    facts = cache(partial(training_facts, config, recipe))
    steps, optimiser = _schedule(config, recipe)
    moving = recipe.model == "gpt" and recipe.offset == "random"

    def shifted(seed: int, step: int) -> Facts:
        fixed = facts(seed)
        source = generator(seed, "bridge", "offset", recipe.complexity, step)
        shape = fixed.offset.shape
        offset = torch.randint(config.gpt.max_offset + 1, shape, generator=source)
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
    """Steps and optimiser of an arm."""
    if recipe.model == "embedding":
        return config.embedding.steps, adam(config.embedding.lr)
    if recipe.model == "direction":
        own = config.direction
        return own.steps, gradient_descent(own.lr, weight_decay=own.weight_decay)
    gpt = config.gpt
    tied = recipe.head == "tied"
    steps, lr = (gpt.tied_steps, gpt.tied_lr) if tied else (gpt.steps, gpt.lr)
    warmup = min(gpt.warmup, steps // 2)
    return steps, Optimiser("adamw", lr, gpt.weight_decay, warmup=warmup)
