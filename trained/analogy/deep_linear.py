"""A deep linear network trained layer by layer (Theorem 6).

f = W_L ... W_1 x with orthonormal inputs x, two per label, hidden layers that start
as the identity and a fixed orthonormal head. Each layer's turn adds to h(x) a
multiple of the head row of x's label, so inputs with one label align a little more
at every layer. Falsified by a same-label cosine that falls from one layer to the next.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from trained.arm import Arm, Stage, gradient_descent
from trained.seeding import generator

from .config import Config

ARM = "linear"
STEPS = 4
"""Steps of a layer's turn [T]."""
INPUTS_PER_LABEL = 2


class Labelled(NamedTuple):
    """Inputs, one token each, and their labels."""

    tokens: Int[Tensor, "*seed example pos"]
    labels: Int[Tensor, "*seed example"]


class _Linear(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.W = nn.Parameter(torch.eye(width))
        self.hook_resid_pre, self.hook_resid_post = HookPoint(), HookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return self.hook_resid_post(self.hook_resid_pre(x) @ self.W.mT)


class DeepLinear(HookedRootModule):
    """n_layers - 1 hidden layers and a head of the first rows of the identity."""

    W_E: Tensor
    head: Tensor

    def __init__(
        self, width: int, n_labels: int, n_layers: int, *, generator: Generator
    ) -> None:
        super().__init__()
        n_inputs = n_labels * INPUTS_PER_LABEL
        draw = torch.randn(width, n_inputs, generator=generator)
        inputs = torch.linalg.qr(draw).Q.mT.contiguous()
        self.register_buffer("W_E", inputs, persistent=False)
        self.register_buffer("head", torch.eye(n_labels, width), persistent=False)
        layers = nn.ModuleList([_Linear(width) for _ in range(n_layers - 1)])
        self.blocks = cast(Sequence[_Linear], layers)
        self.hook_logits = HookPoint()
        self.setup()

    def forward(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos label"]:
        """Logits of the labels of inputs given by number."""
        x = self.W_E[tokens]
        for block in self.blocks:
            x = block(x)
        return self.hook_logits(x @ self.head.mT)


def arms(config: Config) -> tuple[Arm, ...]:
    """One network, its layers trained one after the other from the bottom."""
    width, n_labels = config.linear_width, config.linear_width // 8
    data = examples(n_labels)
    stages = tuple(
        Stage(
            f"layer {layer}",
            STEPS,
            gradient_descent(rate(n_labels)),
            _loss,
            lambda _seed, _step: data,
            trainable=(f"blocks.{layer}.*",),
        )
        for layer in range(config.linear_layers - 1)
    )
    build = partial(_build, width, n_labels, config.linear_layers)
    return (Arm(ARM, build, stages, record_every=1),)


def examples(n_labels: int) -> Labelled:
    """Input 2j and input 2j + 1 have label j."""
    labels = torch.arange(n_labels).repeat_interleave(INPUTS_PER_LABEL)
    return Labelled(torch.arange(len(labels))[:, None], labels)


def rate(n_labels: int) -> float:
    """Learning rate: 4 for 64 inputs, so that a layer's turn adds as much at any size.

    >>> rate(32)
    4.0
    """
    return 4 * n_labels * INPUTS_PER_LABEL / 64


def _build(width: int, n_labels: int, n_layers: int, seed: int) -> DeepLinear:
    source = generator(seed, "analogy", "linear")
    return DeepLinear(width, n_labels, n_layers, generator=source)


def _loss(model: Any, data: Labelled) -> Float[Tensor, ""]:
    return cross_entropy(model(data.tokens)[:, -1], data.labels)
