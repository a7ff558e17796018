"""Into a transformers attention layer, between its projections.

transformers hands queries (after rotation), keys and values to a function that it looks
up by name in the layer's configuration. A layer that somebody listens to gets a copy of
that configuration with our name in it; every other layer, and the mask that the model
builds, stay as they were. A pattern is worked out only where it is asked for, and the
layer's own kernel (SDPA, usually) still computes the output unless it was edited.
"""

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from trained.errors import BadInput

from .tap import Tap

NAME = "reasonscope"

Place = Literal["pattern", "value"]


@dataclass
class _Seam:
    """Who listens to one attention layer, and the configuration it came with."""

    config: Any
    taps: dict[Place, Tap] = field(default_factory=dict)


_SEAMS: dict[nn.Module, _Seam] = {}


@dataclass(frozen=True)
class Opening:
    """A tap at an attention layer; removing the last one gives the layer back."""

    attention: nn.Module
    place: Place

    def remove(self) -> None:
        """Stop feeding the tap."""
        seam = _SEAMS[self.attention]
        del seam.taps[self.place]
        if not seam.taps:
            self.attention.config = seam.config
            del _SEAMS[self.attention]


def open_attention(attention: nn.Module, place: Place, tap: Tap) -> Opening:
    """Feed a tap with the pattern or the values of an attention layer."""
    if attention not in _SEAMS:
        own: Any = attention.config
        _SEAMS[attention] = _Seam(own)
        ours = copy.copy(own)
        ours._attn_implementation = NAME
        attention.config = ours
    _SEAMS[attention].taps[place] = tap
    return Opening(attention, place)


def _attend(
    module: nn.Module,
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_head"],
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Float[Tensor, "batch query head d_head"], Tensor | None]:
    """What transformers calls in place of a layer's own attention function."""
    seam = _SEAMS[module]
    if "value" in seam.taps:
        value = _edited_value(seam.taps["value"], value)
    if "pattern" in seam.taps:
        if options.get("dropout"):
            raise BadInput("patterns are seen without dropout only: call model.eval()")
        scaling, soft_cap = options["scaling"], options.get("softcap")
        pattern = attention_pattern(
            query, key, attention_mask, scaling=scaling, soft_cap=soft_cap
        )
        edited = seam.taps["pattern"](pattern)
        if edited is not None:
            return _mix(edited, value), edited
    own = _own_attention(module, seam.config)
    return own(module, query, key, value, attention_mask, **options)


def _own_attention(module: nn.Module, config: Any) -> Callable[..., Any]:
    """The function that the layer would have called without us."""
    eager = sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS.get_interface(config._attn_implementation, eager)


def _edited_value(
    tap: Tap, value: Float[Tensor, "batch kv_head pos d_head"]
) -> Float[Tensor, "batch kv_head pos d_head"]:
    edited = tap(
        rearrange(value, "batch kv_head pos d_head -> batch pos kv_head d_head")
    )
    if edited is None:
        return value
    return rearrange(edited, "batch pos kv_head d_head -> batch kv_head pos d_head")


def attention_pattern(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    mask: Tensor | None,
    *,
    scaling: float,
    soft_cap: float | None = None,
) -> Float[Tensor, "batch head query key"]:
    """softmax(cap(q k^T scaling) + mask) over the keys that a query may see.

    cap(s) = c tanh(s / c), Gemma 2's. Rows of queries that may see no key (padding)
    are zero.

    Args:
        query: queries, after rotation.
        key: keys, after rotation; each serves head / kv_head query heads in a row.
        mask: what transformers built for the layer: none (causal), or four axes,
            either True at what may be seen or added to the scores.
        scaling: factor of the scores.
        soft_cap: c; none for no cap.
    """
    key = _for_each_head(key, query.shape[1])
    scores = einsum(query, key, "b head query d, b head key d -> b head query key")
    scores = scores * scaling
    if soft_cap is not None:
        scores = soft_cap * (scores / soft_cap).tanh()
    seen, added = _read_mask(mask, scores)
    scores = (scores + added).float().masked_fill(~seen, torch.finfo(torch.float32).min)
    return (scores.softmax(-1) * seen).to(query.dtype)


def _read_mask(
    mask: Tensor | None, scores: Float[Tensor, "batch head query key"]
) -> tuple[Bool[Tensor, "..."], Tensor | float]:
    """What may be seen, and what is added to the scores there."""
    if mask is None:
        queries, keys = scores.shape[-2:]
        seen = torch.ones(queries, keys, dtype=torch.bool, device=scores.device)
        # The queries are the last ones of the keys' positions.
        return seen.tril(keys - queries), 0.0
    if mask.ndim != 4:
        raise BadInput(
            "attention patterns need the mask of sdpa or eager attention; load the "
            'model with attn_implementation="sdpa"'
        )
    if mask.dtype == torch.bool:
        return mask, 0.0
    return mask > torch.finfo(mask.dtype).min, mask


def _mix(
    pattern: Float[Tensor, "batch head query key"],
    value: Float[Tensor, "batch kv_head key d_head"],
) -> Float[Tensor, "batch query head d_head"]:
    value = _for_each_head(value, pattern.shape[1])
    mixed = einsum(pattern, value, "b head query key, b head key d -> b query head d")
    return mixed.contiguous()


def _for_each_head(
    shared: Float[Tensor, "batch kv_head key d_head"], n_heads: int
) -> Float[Tensor, "batch head key d_head"]:
    """Keys or values of grouped-query attention, repeated for every query head."""
    group = n_heads // shared.shape[1]
    return repeat(shared, "b kv_head key d -> b (kv_head group) key d", group=group)


AttentionInterface.register(NAME, _attend)
