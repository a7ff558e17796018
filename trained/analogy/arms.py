"""What the analogy study trains, at a configuration.

`block-*` is the one-layer block with layer-wise stages, `relu-*` the ReLU block end to
end at two init scales, `gpt-*` GPT-2 from scratch on the same prompts, `linear` the
deep linear network, its layers trained one after the other from the bottom.
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
    curriculum,
    final_states,
    metrics,
    premise_loss,
    shuffle,
    value_features,
)

TWINNED = (
    *("*-joint*", "*-SA", "block-AS_T", "relu-*-AS_E", "gpt-AS_E"),
    *("*-bridge", "*-no_bridge", "block-permuted*", "block-half_bridge", "linear"),
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
    return tuple(
        _relu_arm(config, scale, name)
        for scale in ("main", "small")
        for name in config.curricula
        if config.ours or name != "AS_T"
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
        metrics(value_features),
        lambda _seed: world.conclusions(),
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
    for name in ("SA", "AS_T", "AS_E"):
        if name in config.curricula and (config.ours or name != "AS_T"):
            taught = curriculum(name, k)
            result.append(_gpt_arm(config, f"gpt-{name}", taught))
            if config.ours and name != "SA":
                again = taught.with_replay()
                result.append(_gpt_null(config, f"{name}-replay", again))
    for name in ("bridge", "no_bridge"):
        result.append(_gpt_arm(config, f"gpt-{name}", curriculum(name, k)))
    result.append(_gpt_null(config, "decoy", curriculum("decoy", k)))
    return tuple(result)


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
            Optimiser("adamw", sizes.lr, weight_decay=sizes.weight_decay),
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
        metrics(final_states),
        lambda _seed: world.conclusions(),
        record_every=10,
        save_steps=(sizes.steps,) if name == "gpt-SA" or again else (),
    )


def _decoder(shape: DecoderConfig, seed: int) -> Decoder:
    return Decoder(shape, generator=generator(seed, "analogy", "gpt", shape.d_vocab))


def linear_arms(config: Config) -> tuple[Arm, ...]:
    """One deep linear network.

    Each layer's turn adds to h(x) a multiple of the head row of x's label, so inputs
    with one label align a little more at every layer (Theorem 6). Falsified by a
    same-label cosine that falls from one layer to the next.
    """
    sizes = config.linear
    data = labelled(sizes)
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
    return (Arm("linear", partial(_deep_linear, sizes), stages, record_every=1),)


def labelled(sizes: Linear) -> Batch:
    """Inputs of one token each; those of a label follow each other."""
    labels = torch.arange(sizes.n_labels).repeat_interleave(sizes.inputs_per_label)
    return Batch(torch.arange(len(labels))[:, None], labels)


def _deep_linear(sizes: Linear, seed: int) -> DeepLinear:
    return DeepLinear(sizes, generator=generator(seed, "analogy", "linear"))


def _label_loss(model: Any, data: Batch) -> Float[Tensor, ""]:
    return cross_entropy(model(data.tokens)[:, -1], data.targets)
