"""The backend for models traced by nnsight.

nnsight runs a forward pass beside a block of code that reads values in the order in
which the model computes them. `Traced` writes that block: it visits every site that
somebody listens to, in order, and hands back what the callbacks changed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from circuits.sites import Kind, Site, described
from trained.errors import BadInput, unknown

from . import Callback, Handle, hf
from .anatomy import HeadWeights, Readout, Writing
from .families import Family, family_of
from .tap import Tap, scaled
from .view import View, shown


class Traced(nn.Module):
    """A transformers model inside nnsight; called as the model itself is.

    It takes the model over: attention becomes explicit (`eager`), as patterns exist
    nowhere else, and nnsight keeps its own functions in the modules.

    Attributes:
        transformers_model: the model.
        nnsight: nnsight's view of it, for traces of one's own.
        taps: what somebody listens to.
    """

    def __init__(self, transformers_model: nn.Module) -> None:
        from nnsight import NNsight

        super().__init__()
        model: Any = transformers_model
        model.set_attn_implementation("eager")
        self.transformers_model = model
        self.family = family_of(model)
        self.nnsight = NNsight(model)
        self.taps: dict[Site, Tap] = {}

    def forward(self, *args: Any, **options: Any) -> Any:
        """What the transformers model answers, with every edit in force."""
        from nnsight import save

        if not self.taps:
            return self.transformers_model(*args, **options)
        with self.nnsight.trace(*args, **options):
            self._visit()
            # nnsight carries names, not a return, out of the block.
            output = save(self.nnsight.output)
        return output  # noqa: RET504

    def _visit(self) -> None:
        for layer, block in enumerate(self.nnsight.get(self.family.blocks)):
            taps: dict[Kind, Tap] = {
                site.kind: tap
                for site, tap in self.taps.items()
                if site.kind != "logits" and site.layer == layer
            }
            if taps:
                _visit_block(block, self.family, taps)
        if Site("logits") in self.taps:
            _visit_logits(self.nnsight, self.taps[Site("logits")])


def sites(model: Traced) -> list[Site]:
    """Every site that the model has, in the order of kinds and layers."""
    return hf.sites(model.transformers_model)


def attach(model: Traced, site: Site, callback: Callback) -> Handle:
    """Call back with the activation at a site on every forward pass."""
    if site not in model.taps:
        known = sites(model)
        if site not in known:
            raise unknown("site", site, described(known))

        def close() -> None:
            del model.taps[site]

        model.taps[site] = Tap(close)
    return model.taps[site].add(callback)


def attach_view(
    model: Traced, layer: int, view: View, show: Callable[[Tensor], None]
) -> Handle:
    """Show what a view asks of a layer's pattern on every forward pass."""
    return attach(model, Site("pattern", layer), shown(view, show))


def unembedding(model: Traced) -> None:
    """All positions are unembedded."""
    del model


def readout(model: Traced) -> Readout:
    """From the last residual to logits."""
    return hf.readout(model.transformers_model)


def resumption(model: Traced) -> None:
    """Passes cannot start inside a traced model."""
    del model


def branching(model: Traced, length: int) -> None:
    """Runs of these models cannot be branched off."""
    del model, length


def head_weights(model: Traced, layer: int) -> HeadWeights:
    """The weights of a layer's heads."""
    return hf.head_weights(model.transformers_model, layer)


def writing(model: Traced, layer: int) -> Writing:
    """What a layer's heads and neurons become."""
    return hf.writing(model.transformers_model, layer)


def _visit_block(block: Any, family: Family, taps: Mapping[Kind, Tap]) -> None:
    """The sites of one block in the order in which it computes them."""
    scale = family.residual_scale
    _visit_input(block, "", taps.get("resid_pre"))
    if "value" in taps or "pattern" in taps:
        _visit_attention(block.get(family.attention), taps)
    if "head_out" in taps:
        _visit_heads(block, family, scaled(taps["head_out"], scale))
    _visit_output(block, family.attention_added, taps.get("attn_out"), scale)
    change = _visit_input(block, family.middle, taps.get("resid_mid"))
    _visit_input(block, family.down_projection, taps.get("mlp_act"))
    _visit_output(block, family.mlp_added, taps.get("mlp_out"), scale)
    if change is not None:
        # The residual also goes past the norm, straight to the block's output.
        block.output = block.output + change
    _visit_output(block, "", taps.get("resid_post"))


def _visit_input(block: Any, path: str, tap: Tap | None) -> Tensor | None:
    """Pass the input of a part through a tap; what was added to it, if anything."""
    if tap is None:
        return None
    part = block.get(path) if path else block
    before = part.input
    edited = tap(before)
    if edited is None:
        return None
    part.input = edited
    return edited - before


def _visit_output(block: Any, path: str, tap: Tap | None, scale: float = 1.0) -> None:
    """An attention module answers with a tuple, the rest with a tensor."""
    if tap is None:
        return
    part = block.get(path) if path else block
    output = part.output
    first, *rest = output if isinstance(output, tuple) else (output,)
    edited = scaled(tap, scale)(first)
    if edited is not None:
        part.output = (edited, *rest) if isinstance(output, tuple) else edited


def _visit_heads(block: Any, family: Family, see: Callback) -> None:
    """What each head adds; an edit replaces the projection's output by their sum."""
    projection = block.get(family.output_projection)
    n_heads = block.get(family.attention)._module.config.num_attention_heads
    heads = rearrange(projection.input, "b pos (head d) -> b pos head d", head=n_heads)
    edited = see(hf.by_head(heads, projection._module))
    if edited is not None:
        projection.output = hf.joined(edited, projection._module)


def _visit_logits(model: Any, tap: Tap) -> None:
    output = model.output
    edited = tap(output.logits)
    if edited is not None:
        output.logits = edited
        model.output = output


def _visit_attention(attention: Any, taps: Mapping[Kind, Tap]) -> None:
    """Values and pattern, inside the function that the attention module calls."""
    call = _attention_call(attention.source)
    (module, query, key, value, mask, *rest), options = call.inputs
    if "value" in taps:
        shown = rearrange(value, "b kv_head pos d -> b pos kv_head d")
        edited = taps["value"](shown)
        if edited is not None:
            value = rearrange(edited, "b pos kv_head d -> b kv_head pos d")
            call.inputs = ((module, query, key, value, mask, *rest), options)
    if "pattern" in taps:
        softmax = _softmax(call.source)
        weights = softmax.output
        # Rows of padding see nothing; softmax spreads them over what is masked.
        pattern = (weights * _seen(mask, weights)).to(query.dtype)
        edited = taps["pattern"](pattern)
        if edited is not None:
            softmax.output = edited.to(weights.dtype)


def _attention_call(source: Any) -> Any:
    """The operation that calls the attention function, among a forward's."""
    # The name is bound first and called last.
    calls = [name for name in source.names if name.startswith("attention_interface_")]
    if not calls:
        raise BadInput("nnsight finds no attention_interface here; use backend hf")
    return getattr(source, calls[-1])


def _softmax(source: Any) -> Any:
    """The operation whose output is the pattern, in the attention function."""
    found = [name for name in source.names if "softmax" in name]
    if len(found) != 1:
        raise BadInput(
            f"nnsight finds {len(found)} softmax operations in the attention function, "
            "not one; use backend hf"
        )
    return getattr(source, found[0])


def _seen(mask: Tensor | None, weights: Tensor) -> Tensor | float:
    """Where a query may look, from the mask that is added to the scores."""
    if mask is None:
        return 1.0
    mask = mask[..., : weights.shape[-1]]
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min
