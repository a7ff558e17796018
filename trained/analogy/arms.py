"""What the analogy study trains, at a configuration.

`block-*` is the one-layer block with layer-wise stages, `relu-*` the ReLU block end to
end at two init scales, `gpt-*` GPT-2 from scratch on the same prompts, `linear-*`
deep linear networks, their layers trained one after the other from the bottom.
"""

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from trained.arm import Arm, Optimiser, Stage, gradient_descent, shuffled
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator
from trained.task import Batch

from .block_arms import block_arms
from .config import Config, Linear, Scale
from .model import DeepLinear, ReluBlock
from .task import (
    Curriculum,
    block_reading,
    curriculum,
    gpt_reading,
    premise_loss,
    scores,
    shuffle,
)

TWINNED = (
    *("*-joint*", "*-SA", "block-AS_T", "relu-*-AS_E", "gpt-AS_E"),
    *("*-bridge", "*-no_bridge", "block-permuted*", "block-half_bridge", "linear-*"),
    *("block-AS_T-replay", "gpt-labelled"),
)
"""The arms, as patterns, that claims of the paper and their controls rest on."""


def arms(config: Config) -> tuple[Arm, ...]:
    """Every arm of the parts that the configuration asks for, and the twins."""
    parts = {
        "block": block_arms,
        "relu": relu_arms,
        "gpt": gpt_arms,
        "linear": linear_arms,
    }
    found = [arm for part in config.parts for arm in parts[part](config)]
    twins = [
        _twin(arm)
        for arm in found
        if config.twins and any(fnmatchcase(arm.name, glob) for glob in TWINNED)
    ]
    return (*found, *twins)


def _twin(arm: Arm) -> Arm:
    """The null of an arm; of the steps before its last, claims ask the block's only."""
    saved = arm.save_steps[:1] if arm.name.startswith("block") else ()
    return replace(shuffled(arm, shuffle), save_steps=saved)


def relu_arms(config: Config) -> tuple[Arm, ...]:
    """Every curriculum at every init scale; nothing is frozen.

    What attribution before similarity does here depends on the reading and on the
    scale, so both readings run at both scales.
    """
    found = [
        _relu_arm(config, scale, name)
        for scale in ("main", "small")
        for name in config.curricula
        if config.ours or name != "AS_T"
    ]
    few = config.null_seeds
    return tuple(
        replace(arm, max_seeds=few) if arm.name.endswith("AS_T") else arm
        for arm in found
    )


def _relu_arm(config: Config, scale_name: str, name: str) -> Arm:
    sizes, scale = config.relu, getattr(config.relu, scale_name)
    taught = curriculum(name, config.multiplicity)
    world = taught.world(sizes.n_entities)
    stages = tuple(
        Stage(
            f"phase {index}",
            sizes.steps,
            gradient_descent(scale.rate),
            premise_loss,
            world.draw(phase),
            stop_below=sizes.loss,
        )
        for index, phase in enumerate(taught.phases, start=1)
    )
    return Arm(
        f"relu-{scale_name}-{name}",
        partial(_relu_block, world.size, sizes.n_neurons, scale),
        stages,
        measure=partial(scores, block_reading),
        held_out=lambda _seed: world.conclusions(),
        record_every=20,
        save_steps=(sizes.steps,) if name == "SA" else (),
    )


def _relu_block(d_vocab: int, n_neurons: int, scale: Scale, seed: int) -> ReluBlock:
    return ReluBlock(
        d_vocab,
        d_vocab + 6,  # 128 for 30 tuples: about square
        n_neurons=n_neurons,
        scale=scale.scale,
        std=scale.std,
        generator=generator(seed, "analogy", "relu", d_vocab),
    )


def gpt_arms(config: Config) -> tuple[Arm, ...]:
    """The curricula, the values of k, both two-hop tasks, nulls and replays."""
    k, result = config.multiplicity, []
    if "joint" in config.curricula:
        result += [
            _gpt_arm(config, f"gpt-joint-k{k}", curriculum("joint", k))
            for k in config.gpt_ks
        ]
        result.append(_gpt_null(config, "permuted", curriculum("permuted", k)))
    for name in ("SA", "AS_E"):
        if name in config.curricula:
            result.append(_gpt_arm(config, f"gpt-{name}", curriculum(name, k)))
    if "AS_E" in config.curricula:
        again = curriculum("AS_E", k).with_replay()
        result.append(_gpt_null(config, "AS_E-replay", again))
    if "AS_T" in config.curricula and config.ours:
        taught = curriculum("AS_T", k)
        result.append(_gpt_null(config, "AS_T", taught))
        result.append(_gpt_null(config, "AS_T-replay", taught.with_replay()))
    for name in ("bridge", "no_bridge"):
        result.append(_gpt_arm(config, f"gpt-{name}", curriculum(name, k)))
    result.append(_gpt_null(config, "decoy", curriculum("decoy", k)))
    own = replace(_gpt_labelled(config, shared=False), max_seeds=config.null_seeds)
    return (*result, _gpt_labelled(config, shared=True), own)


def _gpt_labelled(config: Config, *, shared: bool) -> Arm:
    """GPT-2 on single tokens with labels, for Figure 1b.

    Args:
        config: the configuration.
        shared: whether inputs share a label, or as a null each has its own.
    """
    sizes = config.labelled
    data = labelled(sizes.n_labels, sizes.inputs_per_label)
    if not shared:
        data = data.with_targets(torch.arange(len(data)))
    shape = DecoderConfig(
        d_vocab=len(data),
        d_vocab_out=int(data.targets.max()) + 1,
        d_model=sizes.width,
        n_layers=config.gpt.layers,
        n_heads=config.gpt.heads,
        n_ctx=1,
        head="untied",
        embedding="orthonormal",
        init_std=config.gpt.init_std,
    )
    stage = Stage(
        "labels",
        config.gpt.steps,
        _adamw(config),
        _label_loss,
        lambda _seed, _step: data,
    )
    name = "gpt-labelled" if shared else "gpt-own_labels"
    return Arm(name, partial(_decoder, shape), (stage,), record_every=10)


def _adamw(config: Config) -> Optimiser:
    return Optimiser("adamw", config.gpt.lr, weight_decay=config.gpt.weight_decay)


def _gpt_null(config: Config, name: str, taught: Curriculum) -> Arm:
    arm = _gpt_arm(config, f"gpt-{name}", taught)
    return replace(arm, max_seeds=config.null_seeds)


def _gpt_arm(config: Config, name: str, taught: Curriculum) -> Arm:
    sizes = config.gpt
    world = taught.world(sizes.n_entities)
    stages = tuple(
        Stage(
            f"phase {index}",
            sizes.steps,
            _adamw(config),
            premise_loss,
            world.draw(phase),
            stop_below=sizes.loss,
        )
        for index, phase in enumerate(taught.phases, start=1)
    )
    again = config.ours and len(stages) > 1
    shape = DecoderConfig(
        d_vocab=world.size,
        d_model=sizes.width,
        n_layers=sizes.layers,
        n_heads=sizes.heads,
        n_ctx=2,
        head="untied",
        embedding="orthonormal",
        init_std=sizes.init_std,
    )
    return Arm(
        name,
        partial(_decoder, shape),
        stages,
        measure=partial(scores, gpt_reading),
        held_out=lambda _seed: world.conclusions(),
        record_every=10,
        save_steps=(sizes.steps,) if name == "gpt-SA" or again else (),
    )


def _decoder(shape: DecoderConfig, seed: int) -> Decoder:
    return Decoder(shape, generator=generator(seed, "analogy", "gpt", shape.d_vocab))


def linear_arms(config: Config) -> tuple[Arm, ...]:
    """Deep linear networks, one for every number of inputs that share a label.

    Each layer's turn adds to h(x) a multiple of the head row of x's label, so inputs
    with one label align a little more at every layer (Theorem 6). Falsified by a
    same-label cosine that falls from one layer to the next.
    """
    return tuple(_linear_arm(config.linear, k) for k in config.linear.inputs_per_label)


def _linear_arm(sizes: Linear, inputs: int) -> Arm:
    data = labelled(sizes.n_labels, inputs)
    stages = tuple(
        Stage(
            f"layer {layer}",
            sizes.steps,
            gradient_descent(sizes.rate * len(data) / 64),
            _label_loss,
            lambda _seed, _step: data,
            trainable=(f"blocks.{layer}.*",),
        )
        for layer in range(sizes.layers - 1)
    )
    build = partial(_deep_linear, sizes, len(data))
    return Arm(f"linear-{inputs}", build, stages, record_every=1)


def labelled(n_labels: int, inputs: int) -> Batch:
    """Inputs of one token each; those of a label follow each other."""
    labels = torch.arange(n_labels).repeat_interleave(inputs)
    return Batch(torch.arange(len(labels))[:, None], labels)


def _deep_linear(sizes: Linear, n_inputs: int, seed: int) -> DeepLinear:
    source = generator(seed, "analogy", "linear", n_inputs)
    return DeepLinear(sizes, n_inputs, generator=source)


def _label_loss(model: Any, data: Batch) -> Float[Tensor, ""]:
    return cross_entropy(model(data.tokens)[:, -1], data.targets)
