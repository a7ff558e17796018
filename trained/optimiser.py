"""Optimisers as data: a kind, its numbers, and a learning rate for every step."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Optimiser:
    """Plain gradient descent, Adam or AdamW with an optional warm-up and decay.

    All three act element by element, so one optimiser over parameters stacked along
    a seed axis is the same as one optimiser per seed.
    """

    kind: Literal["gd", "adam", "adamw"]
    lr: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: int = 0
    """Steps over which the learning rate rises linearly to `lr`."""
    decay: float = 0.0
    """Fraction of the steps, at the end, over which it falls linearly to 0."""

    def build(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """The torch optimiser over these parameters."""
        if self.kind == "gd":
            return torch.optim.SGD(
                parameters, lr=self.lr, weight_decay=self.weight_decay, fused=True
            )
        make = torch.optim.Adam if self.kind == "adam" else torch.optim.AdamW
        return make(
            parameters,
            lr=self.lr,
            betas=self.betas,
            weight_decay=self.weight_decay,
            fused=True,
        )

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step (counted from 0) of a stage of `steps` steps."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        falling = round(self.decay * steps)
        left = steps - step
        cool = min(1.0, left / falling) if falling else 1.0
        return self.lr * warm * cool


def gradient_descent(lr: float, *, weight_decay: float = 0.0) -> Optimiser:
    """Plain gradient descent, theta <- theta - lr * gradient."""
    return Optimiser("gd", lr, weight_decay)


def adam(lr: float) -> Optimiser:
    """Adam with torch's usual betas and no weight decay."""
    return Optimiser("adam", lr)
