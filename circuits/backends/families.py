"""Where the parts of a transformers decoder are, one entry per family.

A new family is one entry in `FAMILIES`, under the `model_type` of its configuration.
All paths are module names as `named_modules` spells them; those below a block are
relative to it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from trained.errors import BadInput


@dataclass(frozen=True)
class Family:
    """Module paths of a decoder; the defaults are Llama's.

    Attributes:
        blocks: the list of blocks.
        final_norm: the norm before the unembedding.
        unembedding: the last linear layer.
        attention: in a block, the attention module.
        attention_norm: in a block, the norm before the attention.
        projections: in a block, the layers that make queries, keys and values, or the
            one layer that makes all three.
        projection_order: of the outputs of one such layer, in the words of einops.
        output_projection: in a block, the layer whose input is all heads side by side.
        attention_added: in a block, whose output joins the residual stream for the
            attention: the attention itself, or a norm behind it.
        mlp_norm: in a block, the norm whose input is the residual between both halves.
        down_projection: in a block, the layer that leads from the MLP's neurons back.
        mlp_added: in a block, whose output joins the residual stream for the MLP.
        parallel: config -> whether attention and MLP read the same residual, so that
            there is none between them.
    """

    blocks: str = "model.layers"
    final_norm: str = "model.norm"
    unembedding: str = "lm_head"
    attention: str = "self_attn"
    attention_norm: str = "input_layernorm"
    projections: tuple[str, ...] = (
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
    )
    projection_order: str = "(part head d_head)"
    output_projection: str = "self_attn.o_proj"
    attention_added: str = "self_attn"
    mlp_norm: str = "post_attention_layernorm"
    down_projection: str = "mlp.down_proj"
    mlp_added: str = "mlp"
    parallel: Callable[[Any], bool] = lambda _config: False


_LLAMA = Family()

_GEMMA_WITH_POST_NORMS = Family(
    attention_added="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_added="post_feedforward_layernorm",
)

FAMILIES: dict[str, Family] = {
    "gemma": _LLAMA,
    "gemma2": _GEMMA_WITH_POST_NORMS,
    "gemma3_text": _GEMMA_WITH_POST_NORMS,
    "gpt2": Family(
        blocks="transformer.h",
        final_norm="transformer.ln_f",
        attention="attn",
        attention_norm="ln_1",
        projections=("attn.c_attn",),
        output_projection="attn.c_proj",
        attention_added="attn",
        mlp_norm="ln_2",
        down_projection="mlp.c_proj",
    ),
    "gpt_neox": Family(
        blocks="gpt_neox.layers",
        final_norm="gpt_neox.final_layer_norm",
        attention="attention",
        projections=("attention.query_key_value",),
        projection_order="(head part d_head)",
        output_projection="attention.dense",
        attention_added="attention",
        down_projection="mlp.dense_4h_to_h",
        parallel=lambda config: config.use_parallel_residual,
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "phi": Family(
        final_norm="model.final_layernorm",
        output_projection="self_attn.dense",
        down_projection="mlp.fc2",
        parallel=lambda _config: True,
    ),
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
}


def family_named(model_type: str) -> Family:
    """The family of a `model_type`; `BadInput` if it is not known."""
    if model_type not in FAMILIES:
        raise BadInput(
            f"the layout of '{model_type}' models is not known; known are "
            f"{', '.join(sorted(FAMILIES))}; a family is one entry in "
            "circuits/backends/families.py"
        )
    return FAMILIES[model_type]


def family_of(model: nn.Module) -> Family:
    """Where the parts of a model are; `BadInput` for a family that is not known."""
    config: Any = model.config
    family = family_named(config.model_type)
    for path in (family.blocks, family.final_norm, family.unembedding):
        if not _has(model, path):
            raise BadInput(
                f"{type(model).__name__} has no {path}; load it with "
                "AutoModelForCausalLM"
            )
    return family


def _has(model: nn.Module, path: str) -> bool:
    try:
        model.get_submodule(path)
    except AttributeError:
        return False
    return True
