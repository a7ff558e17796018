"""A norm as gain * normalised(x) + bias, whatever library it comes from."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trained.errors import BadInput

Norm = Callable[[Tensor], Tensor]
"""A function of residuals `*batch d_model`."""

States = Float[Tensor, "*batch d_model"]
PerState = Float[Tensor, "*batch 1"]

PROBE_SIZE = 1e4
"""So large that no norm's epsilon counts."""


@dataclass(frozen=True)
class NormParts:
    """norm(x) = gain * centre(x) / scale(x) + bias.

    Attributes:
        norm: a LayerNorm (centred), an RMSNorm (not centred) or none (scale 1).
        gain: what normalised states are multiplied by.
        bias: what is added to them.
        centred: whether their mean is taken off first.
    """

    norm: Norm
    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    centred: bool

    def centre(self, states: States) -> States:
        """The states, without their mean where the norm takes it off."""
        return states - states.mean(-1, keepdim=True) if self.centred else states

    def inverse_scale(self, states: States) -> PerState:
        """1 / scale of every state, as the norm itself has it, epsilon and all.

        `BadInput` if the norm is not of the form that its parts say.
        """
        # Squares do not fit into short types.
        wanted = exact(self.norm(states)) - self.bias
        shape = self.gain * self.centre(exact(states))
        size = shape.square().sum(-1, keepdim=True)
        inverse = (wanted * shape).sum(-1, keepdim=True) / size.clamp(min=1e-30)
        error = (inverse * shape - wanted).abs().max()
        if not error <= _tolerance(states) * wanted.abs().max():
            raise BadInput("the norm is neither a LayerNorm nor an RMSNorm")
        return inverse

    def normalised(self, states: States) -> States:
        """The states as the norm leaves them, before gain and bias."""
        return self.inverse_scale(states) * self.centre(states)


def exact(values: Tensor) -> Tensor:
    """In a type that adds no error to those of short ones."""
    return values if values.dtype == torch.float64 else values.float()


@torch.no_grad()
def norm_parts(norm: Norm, like: Float[Tensor, "..."]) -> NormParts:
    """Take a LayerNorm, an RMSNorm or no norm apart, by looking at what it does.

    Args:
        norm: the norm.
        like: residuals, for their width, type and device.
    """
    bias = norm(torch.zeros_like(like[..., :1, :].reshape(-1, like.shape[-1])[:1]))[0]
    signs = _signs(bias)
    answer = norm(PROBE_SIZE * signs) - bias
    twice = norm(2 * PROBE_SIZE * signs) - bias
    # A norm answers the same to twice the input; without one, the answer doubles.
    absent = bool((twice - 2 * answer).abs().max() < 1e-3 * twice.abs().max())
    size = PROBE_SIZE if absent else float(len(bias) / signs.square().sum()) ** 0.5
    gain = answer * signs / size
    if len(bias) % 2:
        other = signs.roll(1)
        rest = (norm(PROBE_SIZE * other) - bias) * other / size
        gain = torch.where(signs == 0, rest, gain)
    return NormParts(norm, gain, bias, _ignores_mean(norm, signs))


def _signs(like: Float[Tensor, " d_model"]) -> Float[Tensor, " d_model"]:
    """+1 and -1 in turn; of an odd number the first is 0, so that the mean is."""
    signs = torch.ones_like(like)
    signs[1::2] = -1
    if len(like) % 2:
        signs[0] = 0
    return signs


def _ignores_mean(norm: Norm, signs: Float[Tensor, " d_model"]) -> bool:
    plain, shifted = norm(PROBE_SIZE * signs), norm(PROBE_SIZE * (signs + 1))
    return bool((shifted - plain).abs().max() < _tolerance(signs) * plain.abs().max())


def _tolerance(like: Tensor) -> float:
    return max(1e-3, 8 * torch.finfo(like.dtype).eps)
