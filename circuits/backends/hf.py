"""The backend for plain transformers models: torch hooks, SDPA left on."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.pytorch_utils import Conv1D

from circuits.sites import KINDS, Kind, Site, described
from trained.errors import BadInput, unknown

from . import Callback, Handle
from .anatomy import HeadWeights, Inward, Readout, Resumption, Writing, block_at
from .branches import Branching
from .families import Family, family_of, has, is_norm, text_config
from .hf_attention import open_attention, view_attention
from .tap import Bypass, Handles, Tap, scaled
from .view import View

_TAPS: dict[tuple[nn.Module, Site], Tap] = {}
"""What somebody listens to; an entry goes with its last callback."""


def sites(model: nn.Module) -> list[Site]:
    """Every site that the model has, in the order of kinds and layers."""
    family, blocks = family_of(model), _blocks(model)
    found = [
        Site(kind, layer)
        for kind in KINDS
        if kind != "logits"
        for layer, block in enumerate(blocks)
        if _has(block, family, kind)
    ]
    return [*found, Site("logits")]


def _has(block: nn.Module, family: Family, kind: Kind) -> bool:
    """Whether a block has sites of a kind: all have those that are not named here."""
    paths: dict[Kind, str] = {
        "resid_mid": family.middle,
        "mlp_act": family.down_projection,
    }
    return kind not in paths or has(block, paths[kind])


def attach(model: nn.Module, site: Site, callback: Callback) -> Handle:
    """Call back with the activation at a site on every forward pass."""
    if (model, site) not in _TAPS:
        _TAPS[model, site] = _open(model, site)
    return _TAPS[model, site].add(callback)


def attach_view(
    model: nn.Module, layer: int, view: View, show: Callable[[Tensor], None]
) -> Handle:
    """Show what a view asks of a layer's pattern on every forward pass."""
    block, name = block_at(_blocks(model), layer), family_of(model).attention
    return view_attention(block.get_submodule(name), view, show)


def unembedding(model: nn.Module) -> nn.Module | None:
    """Whose input may be narrowed; None while somebody listens to the logits."""
    last = model.get_submodule(family_of(model).unembedding)
    heard = any((m._forward_hooks or m._forward_pre_hooks) for m in (model, last))
    return None if heard else last


def readout(model: nn.Module) -> Readout:
    """From the last residual to logits."""
    family = family_of(model)
    unembedding: Any = model.get_submodule(family.unembedding)
    return Readout(
        model.get_submodule(family.final_norm),
        _weight(unembedding).mT,
        unembedding.bias,
        family.soft_cap,
        family.logit_scale,
    )


def resumption(model: nn.Module) -> Resumption:
    """How a pass can start inside the model."""
    unembedding = model.get_submodule(family_of(model).unembedding)
    return Resumption(list(_blocks(model)), unembedding, unembedding)


def branching(model: nn.Module, length: int) -> Branching | None:
    """How runs on prompts of a length can be branched off; None if not exactly.

    Not while somebody listens to the model, since branches have no columns, nor where
    a window is shorter than the prompts, since one mask serves all layers.
    """
    window = getattr(text_config(model), "sliding_window", None)
    hooks = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    heard = hooks or any(tapped is model for tapped, _ in _TAPS)
    if heard or (window is not None and window < length):
        return None
    family, blocks = family_of(model), list(_blocks(model))
    ends = (family.output_projection, family.mlp)
    return Branching(
        model,
        blocks,
        [blocks[-1].get_submodule(name) for name in ends],
        model.get_submodule(family.unembedding),
    )


def head_weights(model: nn.Module, layer: int) -> HeadWeights:
    """The weights of a layer's heads."""
    family, config = family_of(model), text_config(model)
    block = block_at(_blocks(model), layer)
    attention: Any = block.get_submodule(family.attention)
    n_heads = config.num_attention_heads
    W_O = output_weights(block.get_submodule(family.output_projection), n_heads)
    layers = [block.get_submodule(name) for name in family.projections]
    weights = [_inputs_first(part) for part in layers]
    if len(weights) == 1:
        weights = _parted(weights[0], family.joint_order, n_heads, W_O.shape[1])
    query, key, value = (_by_head(part, n_heads, W_O.shape[1]) for part in weights)
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    normalised = any(is_norm(part) for part in attention.children())
    norm = family.attention_norm
    return HeadWeights(
        query,
        key,
        value,
        W_O * family.residual_scale,
        scale=float(attention.scaling),
        norm=block.get_submodule(norm) if norm else nn.Identity(),
        bilinear=not (capped or normalised),
    )


def writing(model: nn.Module, layer: int) -> Writing:
    """What a layer's heads and neurons become."""
    family, block = family_of(model), block_at(_blocks(model), layer)
    scale = family.residual_scale
    projection = block.get_submodule(family.output_projection)
    down = family.down_projection

    def attention(head_out: Tensor) -> Tensor:
        total = joined(head_out / scale, projection)
        return scale * _behind(block, family.attention, family.attention_added)(total)

    def mlp(neurons: Tensor) -> Tensor:
        total = block.get_submodule(down)(neurons)
        return scale * _behind(block, family.mlp, family.mlp_added)(total)

    W_O = scale * output_weights(projection, _n_heads(block, family))
    return Writing(W_O, attention, mlp if has(block, down) else None)


def _behind(block: nn.Module, part: str, added: str) -> nn.Module:
    """The norm between a part of a block and the residual stream, if there is one."""
    return nn.Identity() if added == part else block.get_submodule(added)


def _parted(
    joint: Float[Tensor, "d_model joint"], order: str, n_heads: int, d_head: int
) -> list[Float[Tensor, "d_model _"]]:
    """Queries, keys and values of the one layer that makes all three."""
    if order:
        axes = f"d_model {order} -> part d_model (head d_head)"
        return list(rearrange(joint, axes, part=3, d_head=d_head))
    d_query = n_heads * d_head
    d_key = (joint.shape[1] - d_query) // 2
    return list(torch.split(joint, [d_query, d_key, d_key], 1))


def output_weights(
    projection: nn.Module, n_heads: int
) -> Float[Tensor, "head d_head d_model"]:
    """W_O by head, from a linear layer whose input is all heads side by side."""
    heads = "(head d) d_model -> head d d_model"
    return rearrange(_inputs_first(projection), heads, head=n_heads)


def _inputs_first(projection: nn.Module) -> Float[Tensor, "inputs outputs"]:
    """The weight of a linear layer; transformers' Conv1D stores it the other way."""
    weight, kind = _weight(projection), getattr(projection, "base_layer", projection)
    return weight if isinstance(kind, Conv1D) else weight.mT


def _weight(layer: Any) -> Tensor:
    """What a linear layer multiplies by, with the adapters that PEFT put beside it."""
    weight: Tensor = layer.weight
    if not hasattr(layer, "get_delta_weight") or layer.merged or layer.disable_adapters:
        return weight
    for name in layer.active_adapters:
        if name in layer.lora_A:
            weight = weight + layer.get_delta_weight(name)
    return weight


def _by_head(weight: Float[Tensor, "d_model out"], n_heads: int, d_head: int) -> Inward:
    """One matrix for every query head; those of a group share theirs."""
    group = n_heads * d_head // weight.shape[1]
    parted = rearrange(weight, "d (head d_head) -> head d d_head", d_head=d_head)
    return repeat(parted, "head d d_head -> (head group) d d_head", group=group)


def _blocks(model: nn.Module) -> nn.ModuleList:
    blocks = model.get_submodule(family_of(model).blocks)
    assert isinstance(blocks, nn.ModuleList)
    return blocks


def _open(model: nn.Module, site: Site) -> Tap:
    """A tap that the model feeds until its last callback goes."""
    family, blocks, tap = family_of(model), _blocks(model), Tap()
    there = range(len(blocks))
    if site.layer not in there or not _has(blocks[site.layer], family, site.kind):
        raise unknown("site", site, described(sites(model)))
    if site.kind == "logits":
        source: Handle = model.register_forward_hook(partial(_see_logits, tap))
    else:
        source = _OPENERS[site.kind](blocks[site.layer], family, tap)
    tap.close = partial(_close, model, site, source)
    return tap


def _close(model: nn.Module, site: Site, source: Handle) -> None:
    del _TAPS[model, site]
    source.remove()


def _at_input(module: nn.Module, tap: Tap) -> RemovableHandle:
    return module.register_forward_pre_hook(partial(_see_input, tap))


def _see_input(
    see: Callback, _module: nn.Module, inputs: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    edited = see(inputs[0])
    return None if edited is None else (edited, *inputs[1:])


def _at_output(module: nn.Module, tap: Tap, scale: float = 1.0) -> RemovableHandle:
    return module.register_forward_hook(partial(_see_output, scaled(tap, scale)))


def _see_output(see: Callback, _module: nn.Module, _inputs: Any, output: Any) -> Any:
    """An attention module answers with a tuple, the rest with a tensor."""
    if not isinstance(output, tuple):
        return see(output)
    edited = see(output[0])
    return None if edited is None else (edited, *output[1:])


def _at_middle(block: nn.Module, norm: nn.Module, tap: Tap) -> Handles:
    """The residual between both halves of a block."""
    bypass = Bypass(tap)
    into = norm.register_forward_pre_hook(partial(_see_input, bypass.into))
    # Before those who listen to the block's output.
    past = block.register_forward_hook(partial(_see_output, bypass.past), prepend=True)
    return Handles((into, past))


def _at_heads(
    projection: nn.Module, n_heads: int, scale: float, tap: Tap
) -> RemovableHandle:
    see = partial(_see_heads, scaled(tap, scale), n_heads)
    return projection.register_forward_hook(see)


def _see_heads(
    see: Callback, n_heads: int, projection: nn.Module, inputs: Any, _output: Any
) -> Tensor | None:
    """What each head adds; an edit replaces the projection's output by their sum."""
    heads = rearrange(inputs[0], "b pos (head d) -> b pos head d", head=n_heads)
    edited = see(by_head(heads, projection))
    return None if edited is None else joined(edited, projection)


def by_head(
    heads: Float[Tensor, "batch pos head d_head"], projection: nn.Module
) -> Float[Tensor, "batch pos head d_model"]:
    """What each head adds to a projection's output."""
    weights = output_weights(projection, heads.shape[2])
    return einsum(heads, weights, "b pos head d, head d d_model -> b pos head d_model")


def joined(
    added: Float[Tensor, "batch pos head d_model"], projection: nn.Module
) -> Float[Tensor, "batch pos d_model"]:
    """A projection's output: what its heads add, and its bias."""
    total, bias = added.sum(2), projection.bias
    return total + bias if isinstance(bias, Tensor) else total


def _see_logits(tap: Tap, _module: nn.Module, _inputs: Any, output: Any) -> Any:
    if not hasattr(output, "logits"):
        raise BadInput("logits are seen only with return_dict=True")
    edited = tap(output.logits)
    return None if edited is None else replace(output, logits=edited)


def _n_heads(block: nn.Module, family: Family) -> int:
    config: Any = block.get_submodule(family.attention).config
    return config.num_attention_heads


_OPENERS: dict[Kind, Callable[[nn.Module, Family, Tap], Handle]] = {
    "resid_pre": lambda block, _family, tap: _at_input(block, tap),
    "resid_mid": lambda block, family, tap: _at_middle(
        block, block.get_submodule(family.middle), tap
    ),
    "resid_post": lambda block, _family, tap: _at_output(block, tap),
    "pattern": lambda block, family, tap: open_attention(
        block.get_submodule(family.attention), "pattern", tap
    ),
    "value": lambda block, family, tap: open_attention(
        block.get_submodule(family.attention), "value", tap
    ),
    "head_out": lambda block, family, tap: _at_heads(
        block.get_submodule(family.output_projection),
        _n_heads(block, family),
        family.residual_scale,
        tap,
    ),
    "attn_out": lambda block, family, tap: _at_output(
        block.get_submodule(family.attention_added), tap, family.residual_scale
    ),
    "mlp_act": lambda block, family, tap: _at_input(
        block.get_submodule(family.down_projection), tap
    ),
    "mlp_out": lambda block, family, tap: _at_output(
        block.get_submodule(family.mlp_added), tap, family.residual_scale
    ),
}
