"""What a backend can say of the inside of a model, in words that all of them share."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn

from trained.errors import unknown
from trained.interrupts import Holding

Block = TypeVar("Block")

FinalNorm = Callable[[Tensor], Tensor]
"""A model's normalisation, as a function of residuals `*batch d_model`."""

Inward = Float[Tensor, "head d_model d_head"]

WIDENED = 2**14
"""Columns of an unembedding in half precision that are widened at a time."""


@dataclass(frozen=True)
class Readout:
    """From the last residual to logits: soft_cap(scale (norm(h) W_U + b))."""

    final_norm: FinalNorm
    unembedding: Float[Tensor, "d_model d_vocab"]
    bias: Float[Tensor, " d_vocab"] | None = None
    soft_cap: float | None = None
    scale: float = 1.0

    def logits(
        self, residual: Float[Tensor, "*batch d_model"]
    ) -> Float[Tensor, "*batch d_vocab"]:
        """What the model would say if the residual stream ended here.

        c tanh(x / c) with x = scale (norm(h) W_U + b) and soft cap c (Gemma 2); else x.
        In single precision at least, whatever the model's.
        """
        normed = self.normed(residual)
        tiles = [self.of_normed(normed, part) for part in self._parts(normed)]
        return tiles[0] if len(tiles) == 1 else torch.cat(tiles, -1)

    def target_logits(
        self,
        residual: Float[Tensor, "batch *place d_model"],
        tokens: Int[Tensor, "batch token"],
    ) -> Float[Tensor, "batch *place token"]:
        """Of `logits`, those of each prompt's own tokens: only their columns are read.

        Probabilities need the whole vocabulary; logits and their differences do not.
        """
        normed = self.normed(residual)
        # The unembedding may be tied and huge: these rows are all that is copied.
        columns = self.unembedding.mT[tokens].to(normed.dtype)
        axes = "batch ... d_model, batch token d_model -> batch ... token"
        logits = einsum(normed, columns, axes)
        if self.bias is not None:
            n_places = residual.ndim - 2
            own = self.bias[tokens]
            logits = logits + own.reshape(len(own), *[1] * n_places, -1)
        return self._capped(logits)

    def normed(
        self, residual: Float[Tensor, "*batch d_model"]
    ) -> Float[Tensor, "*batch d_model"]:
        """The residual behind the final norm, in single precision at least."""
        wide = residual.to(torch.promote_types(self.unembedding.dtype, torch.float32))
        norm = self.final_norm
        if not isinstance(norm, nn.Module):
            return norm(wide)
        own = dict(norm.named_parameters())
        if all(weight.dtype == wide.dtype for weight in own.values()):
            return norm(wide)
        weights = {name: weight.to(wide.dtype) for name, weight in own.items()}
        return torch.func.functional_call(norm, weights, (wide,))

    def of_normed(
        self, normed: Float[Tensor, "*batch d_model"], part: slice
    ) -> Float[Tensor, "*batch tile"]:
        """The logits of a part of the vocabulary, from what `normed` gives."""
        logits = normed @ self.unembedding[:, part].to(normed.dtype)
        return self._capped(logits if self.bias is None else logits + self.bias[part])

    def _parts(self, normed: Tensor) -> list[slice]:
        """The vocabulary, in parts where its unembedding has to be widened."""
        if self.unembedding.dtype == normed.dtype:
            return [slice(None)]
        starts = range(0, self.unembedding.shape[1], WIDENED)
        return [slice(start, start + WIDENED) for start in starts]

    def _capped(self, logits: Tensor) -> Tensor:
        logits = logits if self.scale == 1 else logits * self.scale
        if self.soft_cap is None:
            return logits
        return self.soft_cap * (logits / self.soft_cap).tanh()


def logit_scale(config: Any) -> float:
    """What logits are multiplied by, as Granite's and Cohere's configurations say."""
    times = getattr(config, "logit_scale", None) or 1.0
    return float(times) / float(getattr(config, "logits_scaling", None) or 1.0)


@dataclass(frozen=True)
class HeadWeights:
    """The weights of a layer's heads as the model holds them.

    Attributes:
        W_Q: queries.
        W_K: keys, one for every query head.
        W_V: values, one for every query head.
        W_O: what the heads add to the residual stream.
        scale: factor of the scores.
        norm: the norm before the attention.
        bilinear: whether the scores are x W_Q W_K^T x^T: not so where queries and keys
            are normalised (Qwen 3, Gemma 3) or scores capped (Gemma 2).
    """

    W_Q: Inward
    W_K: Inward
    W_V: Inward
    W_O: Float[Tensor, "head d_head d_model"]
    scale: float
    norm: FinalNorm
    bilinear: bool = True


@dataclass(frozen=True)
class Writing:
    """How what a block holds becomes what it adds to the residual stream.

    Attributes:
        W_O: what heads are multiplied by.
        attention: head_out -> attn_out: the sum, a bias, a norm of their sum.
        mlp: mlp_act -> mlp_out; None where there are no neurons.
    """

    W_O: Float[Tensor, "head d_head d_model"]
    attention: Callable[[Tensor], Tensor]
    mlp: Callable[[Tensor], Tensor] | None


@dataclass(frozen=True)
class Resumption:
    """How a pass can start inside a model and end with one position of every prompt.

    Attributes:
        blocks: the model's blocks, in order.
        narrow: the module from whose input on only one position is needed.
        widen: the one whose output are the logits; they are shown at all positions.
    """

    blocks: Sequence[nn.Module]
    narrow: nn.Module
    widen: nn.Module

    @contextmanager
    def starting(
        self,
        residual: Float[Tensor, "batch pos d_model"],
        layer: int,
        places: Int[Tensor, " batch"],
    ) -> Iterator[None]:
        """Let passes in the block start from the residual before a layer.

        Hooks before the layer do not fire.
        """

        def enter(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (residual, *inputs[1:])

        first = block_at(self.blocks, layer)
        with Holding() as held:
            held.enter_context(skipping(self.blocks[:layer]))
            # Before those who listen to the block's input.
            held.add(first.register_forward_pre_hook, enter, prepend=True)
            held.enter_context(self._at(places))
            yield

    @contextmanager
    def _at(self, places: Int[Tensor, " batch"]) -> Iterator[None]:
        """Unembed one position of every prompt, and show its logits at all of them."""
        rows = torch.arange(len(places), device=places.device)
        length = 1

        def narrow(_module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
            nonlocal length
            length = inputs[0].shape[1]
            return inputs[0][rows, places][:, None]

        def widen(_module: nn.Module, _inputs: Any, logits: Tensor) -> Tensor:
            return logits.expand(-1, length, -1)

        with Holding() as held:
            held.add(self.narrow.register_forward_pre_hook, narrow)
            # Before those who listen to the logits.
            held.add(self.widen.register_forward_hook, widen, prepend=True)
            yield


@contextmanager
def skipping(blocks: Sequence[nn.Module]) -> Iterator[None]:
    """Let passes in the block leave out some blocks of a model."""
    with Holding() as held:
        for block in blocks:
            held.callback(_restore, block, vars(block).get("forward"))
            block.forward = _skip
        yield


def block_at(blocks: Iterable[Block], layer: int) -> Block:
    """One of the blocks; `BadInput` if there are not so many."""
    several = list(blocks)
    if not 0 <= layer < len(several):
        raise unknown("layer", layer, f"0 to {len(several) - 1}")
    return several[layer]


def _skip(residual: Tensor, *_args: Any, **_options: Any) -> Tensor:
    """What a block answers that is not run."""
    return residual


def _restore(block: nn.Module, own: Any) -> None:
    if own is None:
        del block.forward
    else:
        block.forward = own
