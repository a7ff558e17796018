"""From a kernel of hidden layers to that of an infinitely wide layer above them.

`TransformerKernel` lifts the attention kernel, `MlpKernel` the inner product of
one-hot inputs, optionally with the incidence matrix beside them. Eq. 3 and Appendices
E, H and I of "When can transformers reason with abstract symbols?"
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from .kernel import AttentionKernel, Columns, Rows, Tokens, first_occurrence

Values = Float[Tensor, "*batch _ _"]
"""Broadcast against each other."""


Kernel = Callable[[Tokens, Tokens], Tensor]
"""A similarity of strings: (x, y) -> [row, col]."""

Lift = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(kxy, kxx, kyy) -> E[phi(p) phi(q)] for Gaussians p and q of that covariance."""


@dataclass(frozen=True)
class CosineLift:
    """phi(t) = cos(frequency t + shift), the activation of the proof.

    1/2 exp(-b1^2 (kxx + kyy) / 2) (exp(b1^2 kxy) + cos(2 b2) exp(-b1^2 kxy)),
    with b1 the frequency and b2 the shift.
    """

    frequency: float = 1.0
    shift: float = 0.3

    def __call__(self, kxy: Values, kxx: Values, kyy: Values) -> Values:
        """The lifted kernel."""
        square = self.frequency**2
        damping = torch.exp(-square * (kxx + kyy) / 2)
        other = math.cos(2 * self.shift) * torch.exp(-square * kxy)
        return damping * (torch.exp(square * kxy) + other) / 2


@dataclass(frozen=True)
class ReluLift:
    """phi(t) = max(t, 0), the arc-cosine kernel of Cho and Saul 2009.

    sqrt(kxx kyy) (sin theta + (pi - theta) cos theta) / (2 pi),
    cos theta = kxy / sqrt(kxx kyy).
    """

    def __call__(self, kxy: Values, kxx: Values, kyy: Values) -> Values:
        """The lifted kernel."""
        size = (kxx * kyy).sqrt()
        cosine = (kxy / size).clamp(-1, 1)
        angle = cosine.acos()
        return size * (angle.sin() + (math.pi - angle) * cosine) / (2 * math.pi)


@dataclass(frozen=True)
class TransformerKernel:
    """K_trans: an infinitely wide layer above an infinite bank of random heads."""

    attention: AttentionKernel = field(default_factory=AttentionKernel)
    lift: Lift = field(default_factory=CosineLift)

    def __call__(self, x: Rows, y: Columns) -> Float[Tensor, "row col"]:
        """The matrix of similarities, from the mean attention kernel."""
        own = [_own(self.attention, strings) for strings in (x, y)]
        return self.lift(self.attention(x, y), own[0][:, None], own[1][None])

    def replicates(self, x: Rows, y: Columns) -> Float[Tensor, "replicate row col"]:
        """The matrix once per scrambling of the integration points."""
        own = [_own(self.attention.replicates, strings) for strings in (x, y)]
        between = self.attention.replicates(x, y)
        return self.lift(between, own[0][..., None], own[1][:, None])


@dataclass(frozen=True)
class MlpKernel:
    """An inner-product kernel: a wide layer above concatenated one-hot tokens.

    <x, y> is the number of positions with equal tokens. `incidence` adds the inner
    product of X X^T and Y Y^T, which is what an MLP sees that is also given the
    flattened incidence matrix; `constant` adds that of one fixed string to both, a
    control with the same size and no information.
    """

    extra: Literal["none", "incidence", "constant"] = "none"
    lift: Lift = field(default_factory=ReluLift)

    def __call__(self, x: Rows, y: Columns) -> Float[Tensor, "row col"]:
        """The matrix of similarities."""
        own = [_own(self._inner, strings) for strings in (x, y)]
        return self.lift(self._inner(x, y), own[0][:, None], own[1][None])

    def _inner(self, x: Rows, y: Columns) -> Float[Tensor, "row col"]:
        inner = (x[:, None] == y[None]).double().sum(-1)
        if self.extra == "none":
            return inner
        if self.extra == "constant":
            return inner + x.shape[1]
        return inner + _incidence(x) @ _incidence(y).mT


def _incidence(tokens: Tokens) -> Float[Tensor, "example pair"]:
    """X X^T of every string, flattened."""
    return (tokens[:, :, None] == tokens[:, None]).double().flatten(1)


def _own(kernel: Kernel, strings: Tokens) -> Float[Tensor, "*replicate example"]:
    """K(x, x), once per equality pattern: tokens are interchangeable."""
    patterns, which = torch.unique(
        first_occurrence(strings), dim=0, return_inverse=True
    )
    values = [kernel(string[None], string[None])[..., 0, 0] for string in patterns]
    return torch.stack(values, dim=-1)[..., which]
