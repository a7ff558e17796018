"""The bilinear maps of attention heads, from the weights of any model that we know.

For states x that the norm before the attention has normalised (its gain is folded into
the matrices, its bias left out):

    scores = scale * x W_Q W_K^T x^T + (terms of biases),   head_out = A x W_V W_O

With rotary positions these are the scores of a query and a key at relative distance 0;
at distance t a rotation stands between W_Q and W_K^T. With grouped-query attention
every query head has a copy of its group's W_K and W_V.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from circuits.hooks import Model, module_of
from circuits.models.norms import NormParts, norm_parts
from probes.weights import diagonal_score
from trained.decoder import Block, Decoder
from trained.errors import BadInput, unknown

Circuit = Literal["qk", "ov"]
"""W_Q W_K^T or W_V W_O."""

Inward = Float[Tensor, "head d_model d_head"]


@dataclass(frozen=True)
class HeadMatrices:
    """The weights of a layer's heads, the norm's gain folded in.

    Attributes:
        W_Q: queries.
        W_K: keys, one for every query head.
        W_V: values, one for every query head.
        W_O: what the heads write.
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
    norm: NormParts
    bilinear: bool = True

    def matrix(self, circuit: Circuit) -> Float[Tensor, "head d_model other"]:
        """W_Q W_K^T or W_V W_O of every head; as large as d_model squared each."""
        left, right = self.factors(circuit)
        return left @ right.mT

    def factors(self, circuit: Circuit) -> tuple[Inward, Inward]:
        """L and R of M = L R^T: W_Q and W_K, or W_V and W_O^T."""
        if circuit not in ("qk", "ov"):
            raise unknown("circuit", circuit, ("qk", "ov"))
        if circuit == "ov":
            return self.W_V, self.W_O.mT
        if not self.bilinear:
            raise BadInput(
                "queries and keys are normalised, or scores capped: the scores are no "
                "bilinear map W_Q W_K^T"
            )
        return self.W_Q, self.W_K

    def identity_part(self, circuit: Circuit) -> Float[Tensor, " head"]:
        """The c of the multiple c I of the identity nearest to M: tr(M) / d_model."""
        left, right = self.factors(circuit)
        trace = einsum(left, right, "head d_model d_head, head d_model d_head -> head")
        return trace / left.shape[1]

    def identity_score(self, circuit: Circuit) -> Float[Tensor, " head"]:
        """Z = sqrt(d) tr(M) / |M|_F of every head: about N(0, 1) for random ones."""
        return diagonal_score(self.matrix(circuit))


@torch.no_grad()
def head_matrices(model: Model, layer: int) -> HeadMatrices:
    """The matrices of a layer's heads, of a Decoder or a transformers model."""
    module = module_of(model)
    # What nnsight wraps is a transformers model; bridges keep their weights elsewhere.
    module = getattr(module, "transformers_model", module)
    if isinstance(module, Decoder):
        _check_layer(layer, len(module.blocks))
        return _of_decoder(module, module.blocks[layer])
    if hasattr(module, "hook_dict") or not hasattr(module, "config"):
        raise BadInput(
            f"the weights of {type(module).__name__} have no known layout; pass a "
            "Decoder, or a transformers model as it is (backend hf or nnsight)"
        )
    return _of_transformers(module, layer)


def _of_decoder(model: Decoder, block: Block) -> HeadMatrices:
    attention, config = block.attn, model.config
    default = config.head_size**-0.5
    return _folded(
        (attention.W_Q, attention.W_K, attention.W_V),
        attention.W_O,
        scale=default if config.score_scale is None else config.score_scale,
        norm=norm_parts(block.ln1.layer, attention.W_O),
    )


def _of_transformers(module: nn.Module, layer: int) -> HeadMatrices:
    from circuits.backends.families import family_of
    from circuits.backends.hf import output_weights

    family, config = family_of(module), _config(module)
    blocks: Any = module.get_submodule(family.blocks)
    _check_layer(layer, len(blocks))
    block: nn.Module = blocks[layer]
    attention: Any = block.get_submodule(family.attention)
    layers = [block.get_submodule(name) for name in family.projections]
    n_heads = config.num_attention_heads
    W_O = output_weights(block.get_submodule(family.output_projection), n_heads)
    d_head = W_O.shape[1]
    if len(layers) == 3:
        parts = [_by_head(_inputs_first(part), n_heads, d_head) for part in layers]
    else:
        order = f"d_model {family.projection_order} -> part head d_model d_head"
        joint = _inputs_first(layers[0])
        parts = list(rearrange(joint, order, part=3, d_head=d_head))
    matrices = _folded(
        (parts[0], parts[1], parts[2]),
        W_O,
        scale=float(attention.scaling),
        norm=norm_parts(block.get_submodule(family.attention_norm), parts[0].mT),
    )
    capped = getattr(config, "attn_logit_softcapping", None) is not None
    normalised = getattr(attention, "q_norm", None) is not None
    return HeadMatrices(**{**vars(matrices), "bilinear": not (capped or normalised)})


def _folded(
    inward: tuple[Inward, Inward, Inward],
    W_O: Float[Tensor, "head d_head d_model"],
    *,
    scale: float,
    norm: NormParts,
) -> HeadMatrices:
    query, key, value = (weight * norm.gain[:, None] for weight in inward)
    return HeadMatrices(query, key, value, W_O.detach(), scale, norm)


def _config(module: nn.Module) -> Any:
    return module.config


def _inputs_first(projection: nn.Module) -> Float[Tensor, "d_model out"]:
    """The weight of a linear layer; transformers' Conv1D stores it the other way."""
    weight = projection.weight
    assert isinstance(weight, Tensor)
    return weight if type(projection).__name__ == "Conv1D" else weight.mT


def _by_head(weight: Float[Tensor, "d_model out"], n_heads: int, d_head: int) -> Inward:
    """One matrix for every query head; those of a group share theirs."""
    group = n_heads * d_head // weight.shape[1]
    parted = rearrange(weight, "d (head d_head) -> head d d_head", d_head=d_head)
    return repeat(parted, "head d d_head -> (head group) d d_head", group=group)


def _check_layer(layer: int, n_layers: int) -> None:
    if not 0 <= layer < n_layers:
        raise unknown("layer", layer, f"0 to {n_layers - 1}")
