"""How close are W_Q W_K^T and W_V W_O to the identity, without the scalars?

The gain of the LayerNorm that heads read is folded in. With aI or bI included every
diagonal would be trivially strong, so they are left out.
"""

from typing import cast

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from probes.weights import diagonal_score
from trained.decoder import Decoder
from trained.symbols.setting import copying, relation

from .context import Context, Specimen, differences
from .edits import decoder


def observe(context: Context) -> dict[str, Observed]:
    """Diagonals of vanilla models by amount of data."""
    config = context.config
    compared = relation(config, config.n[-1])
    found = {
        "symbols.diagonal.qk": Observed.of(
            context.each(compared, largest_key_query_score),
            [largest_key_query_score(s) for s in context.untrained(compared)],
        )
    }
    if len(config.copy_n) >= 2:
        wide = config.copy_d[-1]
        few, many = (copying(wide, n) for n in (config.copy_n[0], config.copy_n[-1]))
        for name, score in (("", joint_score), (".heads", mean_head_score)):
            found[f"symbols.diagonal.ov{name}"] = Observed.of(
                differences(context.each(many, score), context.each(few, score)),
                differences(
                    [score(specimen) for specimen in context.untrained(many)],
                    [score(specimen) for specimen in context.untrained(few)],
                ),
            )
    return found


@torch.no_grad()
def key_query(model: Decoder) -> Float[Tensor, "layer head d_model d_model"]:
    """W_Q W_K^T of every head, both sides scaled by the gain they read."""
    found = []
    for block in model.blocks:
        gain = cast(Tensor, block.ln1.layer.weight)
        axes = "q, head q d, head k d, k -> head q k"
        found.append(einsum(gain, block.attn.W_Q, block.attn.W_K, gain, axes))
    return torch.stack(found)


@torch.no_grad()
def value_output(model: Decoder) -> Float[Tensor, "layer head d_model d_model"]:
    """W_V W_O of every head, its input scaled by the gain it reads."""
    found = []
    for block in model.blocks:
        axes = "i, head i d, head d o -> head i o"
        gain = cast(Tensor, block.ln1.layer.weight)
        found.append(einsum(gain, block.attn.W_V, block.attn.W_O, axes))
    return torch.stack(found)


def largest_key_query_score(specimen: Specimen) -> float:
    """Largest |z| of W_Q W_K^T over layers and heads."""
    return float(diagonal_score(key_query(decoder(specimen))).abs().max())


def joint_score(specimen: Specimen) -> float:
    """The z of the sum of W_V W_O over the first layer's heads."""
    return float(diagonal_score(value_output(decoder(specimen))[0].sum(0)))


def mean_head_score(specimen: Specimen) -> float:
    """Mean z of W_V W_O over layers and heads."""
    return float(diagonal_score(value_output(decoder(specimen))).mean())
