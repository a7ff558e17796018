"""The backend for models with TransformerLens hook points: ours and its bridges.

Ours are built for this. A bridge wraps a foreign model, and some of its sites need more
than a hook: see `_BRIDGE`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from circuits.sites import KINDS, Kind, Site, described, hooked_mlp, hooked_name
from trained.decoder import Decoder
from trained.errors import BadInput, unknown

from . import Callback, Handle
from .anatomy import HeadWeights, Readout, Resumption, block_at, logit_scale
from .tap import Bypass, Handles
from .view import View, shown


def attach(model: nn.Module, site: Site, callback: Callback) -> Handle:
    """Call back with the activation at a site on every forward pass.

    Plain torch hooks, so removing the handle leaves the user's own hooks alone.
    """
    if _is_bridge(model) and site.kind in _BRIDGE:
        return _BRIDGE[site.kind](model, site, callback)
    return _at(_point(model, site), callback)


def sites(model: nn.Module) -> list[Site]:
    """Every site that the model has, in the order of kinds and layers."""
    points = hook_points(model)
    # Not every block need have every site: some have a mixture of experts.
    numbers = [int(n.split(".")[1]) for n in points if n.startswith("blocks.")]
    found = [
        Site(kind, layer)
        for kind in KINDS
        if kind != "logits"
        for layer in range(1 + max(numbers, default=-1))
        if hooked_name(Site(kind, layer)) in points
    ]
    if _is_bridge(model) or hooked_name(Site("logits")) in points:
        found.append(Site("logits"))
    if not _is_bridge(model):
        return found
    parts = _parts_heads(model)
    return [s for s in found if _is_real(model, s) and (parts or s.kind != "head_out")]


def attach_view(
    model: nn.Module, layer: int, view: View, show: Callable[[Tensor], None]
) -> Handle:
    """Show what a view asks of a layer's pattern on every forward pass."""
    return attach(model, Site("pattern", layer), shown(view, show))


def unembedding(model: nn.Module) -> None:
    """All positions are unembedded."""
    del model


def readout(model: Any) -> Readout:
    """From the last residual to logits; `BadInput` if that is not known."""
    if isinstance(model, Decoder):
        return Readout(model.final_norm, model.W_U, model.b_U)
    if not _is_bridge(model):
        raise BadInput(
            f"{type(model).__name__} has no readout of a last residual; pass a Decoder "
            "or a language model"
        )
    # 0 or below stands for no soft cap.
    soft_cap = max(model.cfg.output_logits_soft_cap or 0.0, 0.0) or None
    scale = logit_scale(model.cfg)
    return Readout(model.ln_final, model.W_U, model.b_U, soft_cap, scale)


def resumption(model: Any) -> Resumption | None:
    """How a pass can start inside the model; None if it cannot."""
    if not isinstance(model, Decoder):
        return None
    return Resumption(list(model.blocks), model.ln_final, model.hook_logits)


def branching(model: nn.Module, length: int) -> None:
    """Runs of these models cannot be branched off."""
    del model, length


def head_weights(model: Any, layer: int) -> HeadWeights:
    """The weights of a layer's heads; `BadInput` if these are not known."""
    if not isinstance(model, Decoder):
        raise BadInput(
            f"the weights of {type(model).__name__} have no known layout; pass a "
            "Decoder, or a transformers model as it is (backend hf or nnsight)"
        )
    block, config = block_at(model.blocks, layer), model.config
    default, given = config.head_size**-0.5, config.score_scale
    weights = block.attn
    return HeadWeights(
        weights.W_Q,
        weights.W_K,
        weights.W_V,
        weights.W_O,
        scale=default if given is None else given,
        norm=block.ln1.layer,
    )


def writing(model: nn.Module, layer: int) -> None:
    """Not known."""
    del model, layer


def hook_points(model: nn.Module) -> dict[str, nn.Module]:
    """The model's hook points by name; `BadInput` for a model that has none."""
    points = getattr(model, "hook_dict", None)
    if not points:
        raise BadInput(
            f"{type(model).__name__} has no TransformerLens hook points; "
            "pass a model of trained/ or a TransformerBridge"
        )
    return dict(points)


def _point(model: Any, site: Site) -> nn.Module:
    """The hook point of a site; a bridge lists all of them only slowly."""
    name = hooked_name(site)
    find = model.get_hook_point if _is_bridge(model) else hook_points(model).get
    point = find(name)
    if point is None:
        raise unknown("site", site, described(sites(model)))
    return point


def _is_bridge(model: nn.Module) -> bool:
    return hasattr(model, "set_use_attn_result")


def _at(
    module: nn.Module, callback: Callback, *, prepend: bool = False
) -> RemovableHandle:
    return module.register_forward_hook(partial(_see, callback), prepend=prepend)


def _see(
    callback: Callback, _module: nn.Module, _inputs: Any, output: Tensor
) -> Tensor | None:
    return callback(output)


def _is_real(bridge: Any, site: Site) -> bool:
    """Not the neurons of a mixture of experts: a bridge shows its output there."""
    if site.kind != "mlp_act":
        return True
    find = bridge.get_hook_point
    return find(hooked_name(site)) is not find(hooked_mlp(site.layer))


def _at_neurons(bridge: nn.Module, site: Site, callback: Callback) -> Handle:
    point = _point(bridge, site)
    if not _is_real(bridge, site):
        raise unknown("site", site, described(sites(bridge)))
    return _at(point, callback)


def _at_added(bridge: nn.Module, site: Site, callback: Callback) -> Handle:
    """What Granite's bridges multiply first fires only for hooks that they know of."""
    point = _point(bridge, site)
    return Handles((_at(point, callback), _Announced(point)))


class _Announced:
    """A hook of TransformerLens' own that does nothing, until removed."""

    def __init__(self, point: Any) -> None:
        self.point, self.mark = point, point.add_hook(_nothing)

    def remove(self) -> None:
        """Leave the others; somebody may have removed this one, too."""
        self.mark.hook.remove()
        if self.mark in self.point.fwd_hooks:
            self.point.fwd_hooks.remove(self.mark)


def _nothing(activation: Tensor, hook: Any) -> None:
    """What an announced hook does."""


def _at_logits(bridge: nn.Module, _site: Site, callback: Callback) -> Handle:
    """A bridge has no hook point behind the soft cap: its output is the site."""
    return _at(bridge, callback)


def _at_middle(bridge: nn.Module, site: Site, callback: Callback) -> Handle:
    """A bridge's hook point is on the branch into the norm; the other one follows."""
    bypass = Bypass(callback)
    into = _at(_point(bridge, site), bypass.into)
    end = _point(bridge, Site("resid_post", site.layer))
    # Before those who listen to the end of the block.
    return Handles((into, _at(end, bypass.past, prepend=True)))


def _at_value(bridge: nn.Module, site: Site, callback: Callback) -> Handle:
    """Values of a wrapped model lie side by side; the bridge knows how to part them."""
    point: Any = _point(bridge, site)
    if point.hook_conversion is None:
        return _at(point, callback)
    return _at(point, partial(_see_converted, point.hook_conversion, callback))


def _see_converted(conversion: Any, callback: Callback, flat: Tensor) -> Tensor | None:
    edited = callback(conversion.convert(flat))
    return None if edited is None else conversion.revert(edited)


def _at_heads(bridge: nn.Module, site: Site, callback: Callback) -> Handle:
    """A bridge works out each head's part only when told to."""
    if not _parts_heads(bridge):
        raise unknown("site", site, described(sites(bridge)))
    return Handles((_at_added(bridge, site, callback), _HeadsApart(bridge)))


def _parts_heads(bridge: nn.Module) -> bool:
    """Whether a bridge can: those of TransformerLens' native models cannot."""
    try:
        _HeadsApart(bridge).remove()
    except NotImplementedError:
        return False
    return True


class _HeadsApart:
    """Lets a bridge work out each head's part, until removed."""

    def __init__(self, bridge: Any) -> None:
        self.bridge = bridge
        self.before = bool(bridge.cfg.use_attn_result)
        bridge.set_use_attn_result(True)

    def remove(self) -> None:
        """Let the bridge be as it was."""
        self.bridge.set_use_attn_result(self.before)


_BRIDGE: dict[Kind, Callable[[nn.Module, Site, Callback], Handle]] = {
    "logits": _at_logits,
    "resid_mid": _at_middle,
    "value": _at_value,
    "head_out": _at_heads,
    "attn_out": _at_added,
    "mlp_out": _at_added,
    "mlp_act": _at_neurons,
}
