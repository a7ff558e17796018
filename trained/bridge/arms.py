"""What the bridge study trains: Emb-MLP and a small GPT, with and without identity.

Arms that differ in one thing share everything else: the world, the initial weights and
the position offsets of a seed depend on the seed and the complexity only.
"""

from functools import cache, partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from trained.arm import Arm, Optimiser, Stage, adam, gradient_descent, shuffled
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator
from trained.task import Batch

from .config import Config, Recipe, gpt, recipes, twin_recipes
from .model import EmbMLP, answers, course, fact_loss
from .task import (
    Facts,
    World,
    covered_bridges,
    cycle,
    identity_labels,
    make_world,
    one_hop_facts,
    shuffle,
    with_two_hops,
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


def shown(config: Config, recipe: Recipe, seed: int) -> Bool[Tensor, " pair"]:
    """Which bridges of an arm's seed have their two-hop item trained on."""
    source = generator(seed, "bridge", "shown", recipe.complexity)
    world = world_of(config, recipe, seed)
    share = 0.5 if recipe.two_hop == "half" else 0.0
    return covered_bridges(world, share, generator=source)


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
    if recipe.model == "gpt":
        return Decoder(_sizes(config, recipe, world.d_vocab), generator=source)
    model = EmbMLP(
        world,
        d_model=max(config.embedding.width, 2 * world.n_subjects),
        std=config.embedding.std,
        factors=recipe.factors,
        generator=source,
    )
    # A loss of 1e-12 is below single precision.
    return model.double() if recipe.descent == "scaled" else model


def _sizes(config: Config, recipe: Recipe, d_vocab: int) -> DecoderConfig:
    own, regime = config.gpt, recipe.regime
    gamma = own.gamma if regime == "small" else own.standard_gamma
    return DecoderConfig(
        d_vocab=d_vocab,
        d_model=own.d_model,
        n_layers=own.n_layers,
        n_heads=own.n_heads,
        n_ctx=own.n_context,
        head=recipe.head,
        gamma=None if regime == "std" else gamma,
        init_std=own.std if regime == "std" else None,
    )


def training_facts(config: Config, recipe: Recipe, seed: int) -> Facts:
    """What an arm's seed is trained on, at offset 0."""
    world = world_of(config, recipe, seed)
    labels = identity_labels(world, covered(config, recipe, seed))
    if recipe.task == "permuted":
        labels = world.bridge[permutation(config, recipe, seed)]
    facts = one_hop_facts(world, labels)
    if recipe.two_hop == "none":
        return facts
    return with_two_hops(world, facts, shown(config, recipe, seed))


def held_out(config: Config, recipe: Recipe, seed: int) -> dict[str, Batch]:
    """The prompts that metrics are measured on."""
    world = world_of(config, recipe, seed)
    unseen = (~shown(config, recipe, seed)).nonzero()[:, 0]
    return {
        "hop1": world.hop1(),
        "hop2": world.hop2(),
        "zero_hop": world.zero_hop(),
        "two_hop": world.two_hop().rows(unseen),
    }


def _arm(config: Config, recipe: Recipe) -> Arm:
    stage = _stage(config, recipe)
    objects = world_of(config, recipe, 0).object_tokens
    is_gpt, plain = recipe.model == "gpt", recipe.descent == "plain"
    course_read = recipe.model == "direction" and plain
    return Arm(
        name=recipe.name,
        build=partial(model_of, config, recipe),
        stages=(stage,),
        measure=partial(course if is_gpt else answers, objects=objects),
        held_out=partial(held_out, config, recipe),
        record_every=_record_every(config, recipe, stage.steps),
        save_steps=config.direction.course if course_read else (),
        # Ours, and dear: the paper's arms have all seeds.
        max_seeds=3 if recipe.head == "untied" else None,
    )


def _record_every(config: Config, recipe: Recipe, steps: int) -> int:
    """Steps between records; few where a claim reads the order of events."""
    ordered = recipe == gpt(config.complexity, recipe.task)
    return config.gpt.record_every if ordered else max(1, steps // 3)


def _stage(config: Config, recipe: Recipe) -> Stage:
    facts = cache(partial(training_facts, config, recipe))
    steps, optimiser = _schedule(config, recipe)
    moving = recipe.head == "untied"
    scaled = recipe.descent == "scaled"

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
        stop_below=config.direction.stop_below if scaled else None,
        edit_gradients=_to_norm_one if scaled else None,
    )


def _to_norm_one(gradients: dict[str, Tensor]) -> None:
    """Divide each seed's gradient by its norm over all parameters."""
    squares = [g.square().flatten(1).sum(1) for g in gradients.values()]
    norm = torch.stack(squares).sum(0).sqrt()
    for gradient in gradients.values():
        gradient.div_(norm.reshape(-1, *[1] * (gradient.ndim - 1)))


def _schedule(config: Config, recipe: Recipe) -> tuple[int, Optimiser]:
    """Steps and optimiser of an arm."""
    if recipe.model == "embedding":
        return config.embedding.steps, adam(config.embedding.lr)
    if recipe.model == "direction":
        own = config.direction
        if recipe.descent == "scaled":
            return own.scaled_steps, gradient_descent(own.scaled_lr)
        decay = own.weight_decay if recipe.descent == "decayed" else 0.0
        return own.steps, gradient_descent(own.lr, weight_decay=decay)
    decay = config.gpt.decay if recipe.regime == "decay" else 0.0
    warmup = min(config.gpt.warmup, config.gpt.steps // 2)
    lr = config.gpt.lr
    return config.gpt.steps, Optimiser("adamw", lr, decay, warmup=warmup)
