"""Where the parts of a transformers decoder are, read off its module tree.

transformers writes its decoders alike: a list of blocks, in each an attention module,
an MLP and the norms around them. `family_of` finds these by their classes and their
order, so that a new family needs no line here; what the tree does not tell is in
`EXCEPTIONS`.
Whether what was found is true is for the contract to say (`circuits.models.contract`):
a block whose parts do not add up to its output is refused when it is opened.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from transformers.pytorch_utils import Conv1D

from trained.errors import BadInput

from .anatomy import logit_scale


@dataclass(frozen=True)
class Family:
    """Where the parts of a decoder are, and the factors between them.

    All paths are module names as `named_modules` spells them; those below a block are
    relative to it.

    Attributes:
        blocks: the list of blocks.
        final_norm: the norm before the unembedding.
        unembedding: the last linear layer.
        attention: in a block, the attention module.
        attention_norm: in a block, the norm before the attention; "" for none.
        projections: in a block, the layers that make queries, keys and values, or the
            one layer that makes all three.
        output_projection: in a block, the layer whose input is all heads side by side.
        attention_added: in a block, whose output joins the residual stream for the
            attention: the attention itself, or a norm behind it.
        middle: in a block, whose input is the residual between both halves: the norm
            before the MLP, or the MLP; "" if attention and MLP read the same residual.
        mlp: in a block, the MLP or the mixture of experts in its place.
        down_projection: in a block, the layer that leads from the MLP's neurons back;
            "" for none. Blocks with a mixture of experts do not have it.
        mlp_added: in a block, whose output joins the residual stream for the MLP.
        joint_order: of the outputs of one layer for queries, keys and values, in the
            words of einops; "" for all queries, then all keys, then all values.
        residual_scale: what attention and MLP are multiplied by before they are added.
        logit_scale: what the unembedding's output is multiplied by.
        soft_cap: c of c tanh(x / c), the last thing that happens to logits.
    """

    blocks: str
    final_norm: str
    unembedding: str
    attention: str
    attention_norm: str
    projections: tuple[str, ...]
    output_projection: str
    attention_added: str
    middle: str
    mlp: str
    down_projection: str
    mlp_added: str
    joint_order: str = ""
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    soft_cap: float | None = None


EXCEPTIONS: dict[str, Mapping[str, Any]] = {
    "glm4": {
        "attention_added": "post_self_attn_layernorm",
        "middle": "post_attention_layernorm",
        "mlp_added": "post_mlp_layernorm",
    },
    "gpt_neox": {"joint_order": "(head part d_head)"},
    "persimmon": {"joint_order": "(head part d_head)"},
}
"""`model_type` -> fields of its `Family` that the module tree does not tell."""

JOINT_PROJECTIONS = ("c_attn", "query_key_value", "qkv_proj")
PROJECTIONS = ("q_proj", "k_proj", "v_proj")

Test = Callable[[nn.Module], bool]

_FOUND: WeakKeyDictionary[nn.Module, Family] = WeakKeyDictionary()


def family_of(model: nn.Module) -> Family:
    """Where the parts of a model are; `BadInput` says what was not found."""
    if model not in _FOUND:
        _FOUND[model] = _found(model)
    return _FOUND[model]


def text_config(model: Any) -> Any:
    """The configuration of the decoder; that of a multimodal model lies inside it."""
    return model.config.get_text_config(decoder=True)


def _found(model: Any) -> Family:
    config, decoder = text_config(model), model.get_decoder()
    unembedding = model.get_output_embeddings()
    if unembedding is None:
        raise BadInput(
            f"{type(model).__name__} has no unembedding; load it with "
            "AutoModelForCausalLM"
        )
    paths = {module: name for name, module in model.named_modules()}
    blocks = _only(decoder, "list of blocks", _is_list)
    final_norm = _only(decoder, "final norm", is_norm)
    layers = list(decoder.get_submodule(blocks).children())
    family = Family(
        blocks=f"{paths[decoder]}.{blocks}",
        final_norm=f"{paths[decoder]}.{final_norm}",
        unembedding=paths[unembedding],
        **_parts(layers, config),
        residual_scale=float(getattr(config, "residual_multiplier", 1.0)),
        logit_scale=logit_scale(config),
        soft_cap=getattr(config, "final_logit_softcapping", None),
    )
    return replace(family, **EXCEPTIONS.get(config.model_type, {}))


def _parts(blocks: Sequence[nn.Module], config: Any) -> dict[str, Any]:
    """What there is in a block, and what is added to the residual stream."""
    block = blocks[0]
    attention = _only(block, "attention", _is_attention)
    _require_seam(block.get_submodule(attention))
    mlp = _only(block, "MLP", _is_mlp)
    before, behind, between, after = _norms(block)
    parallel = getattr(config, "use_parallel_residual", not (between or after))
    down = {name for b in blocks for name in _linear(b.get_submodule(mlp), config)[-1:]}
    return {
        "attention": attention,
        "attention_norm": before,
        **_projections(block.get_submodule(attention), attention),
        "attention_added": behind or attention,
        "middle": "" if parallel else between or mlp,
        "mlp": mlp,
        "down_projection": f"{mlp}.{down.pop()}" if len(down) == 1 else "",
        "mlp_added": after or mlp,
    }


def _require_seam(attention: nn.Module) -> None:
    """`BadInput` if what a layer looks at is out of reach, or is not all on keys."""
    name = type(attention).__name__
    if not hasattr(sys.modules[type(attention).__module__], "eager_attention_forward"):
        raise BadInput(
            f"{name} computes attention in its own way, past transformers' attention "
            "interface: its patterns cannot be seen; the backend bridge may see them"
        )
    if hasattr(attention, "sinks"):
        raise BadInput(
            f"{name} has attention sinks: some of what it looks at is on no token, and "
            "rows of its patterns are not probabilities"
        )


def _projections(attention: nn.Module, path: str) -> dict[str, Any]:
    """The layers into an attention module, and the one that is left: out of it."""
    linear = _linear(attention)
    inward = [name for name in PROJECTIONS if name in linear]
    inward = inward or [name for name in JOINT_PROJECTIONS if name in linear]
    outward = [name for name in linear if name not in inward]
    if len(inward) not in (1, 3) or len(outward) != 1:
        raise _strange(attention, "projections", ", ".join(linear) or "no linear layer")
    return {
        "projections": tuple(f"{path}.{name}" for name in inward),
        "output_projection": f"{path}.{outward[0]}",
    }


def _norms(block: nn.Module) -> tuple[str, str, str, str]:
    """The norms before and behind the attention, before and behind the MLP."""
    match _children(block, is_norm):
        case [only]:
            return only, "", "", ""
        case [first, last] if first.startswith("post_"):
            # OLMo 2: nothing is normalised before it is read.
            return "", first, "", last
        case [first, last]:
            return first, "", last, ""
        case [before, behind, between, after]:
            return before, behind, between, after
        case norms:
            raise _strange(block, "norms", ", ".join(norms) or "none")


def _linear(module: nn.Module, config: Any = None) -> list[str]:
    """The linear layers right below a module; with a config, those to the residual."""

    def is_linear(part: nn.Module) -> bool:
        # PEFT puts a layer with an adapter around the model's own.
        own = getattr(part, "base_layer", part)
        if not isinstance(own, nn.Linear | Conv1D):
            return False
        width = own.nf if isinstance(own, Conv1D) else own.out_features
        return config is None or width == config.hidden_size

    return _children(module, is_linear)


def _children(module: nn.Module, is_sought: Test) -> list[str]:
    return [name for name, part in module.named_children() if is_sought(part)]


def _only(module: nn.Module, what: str, is_sought: Test) -> str:
    found = _children(module, is_sought)
    if len(found) != 1:
        raise _strange(module, what, ", ".join(found) or "none")
    return found[0]


def _strange(module: nn.Module, what: str, found: str) -> BadInput:
    parts = ", ".join(name for name, _ in module.named_children())
    return BadInput(
        f"cannot tell the {what} of {type(module).__name__} ({parts}): found {found}; "
        "its layout can be written down in circuits/backends/families.py"
    )


def _is_list(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList)


def is_norm(module: nn.Module) -> bool:
    """By its name: norms have no class in common."""
    return "norm" in type(module).__name__.lower()


def _is_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower()


def _is_mlp(module: nn.Module) -> bool:
    """Whatever else has weights."""
    other = is_norm(module) or _is_attention(module)
    return not other and any(True for _ in module.parameters())


def has(block: nn.Module, path: str) -> bool:
    """Whether a block has the part at a path."""
    try:
        block.get_submodule(path)
    except AttributeError:
        return False
    return path != ""
