"""The study's transformer: bidirectional, read at CLS, with scalars a and b per head.

`scores_h = x W_Q W_K^T x^T / sqrt(d_head) + m a_h x x^T` and
`out += m sum_h b_h A_h x`, x being the LayerNorm's output and m the multiplier. Both
scalars start at 0, where the network is the vanilla one to the last bit. Section 5 and
Appendix B of "When can transformers reason with abstract symbols?"
"""

from typing import Literal

import torch
from einops import rearrange
from torch import Generator

from trained.decoder import Decoder, DecoderConfig

from .sampler import Alphabet

Identity = Literal["none", "a", "b", "ab", "orthogonal"]
"""Which scalars are trained; `orthogonal` weighs with a random orthogonal Q in the
identity's place, a control."""

DEFAULT_SCALE = 3**-0.5
"""A weight with d inputs starts with standard deviation (3 d)^-1/2, as torch's do."""
MIMETIC_WEIGHT = 0.7
"""Of the identity, and of the noise, where W_K W_Q^T starts near the identity."""


def sizes(
    alphabet: Alphabet,
    identity: Identity,
    *,
    multiplier: float,
    width: tuple[int, int, int],
    depth: int,
    d_mlp: int,
) -> DecoderConfig:
    """The network's shape; numbers for real labels, tokens for symbolic ones.

    Args:
        alphabet: which tokens there are.
        identity: which scalars are trained.
        multiplier: the factor m on them.
        width: d_model, number of heads, d_head.
        depth: layers.
        d_mlp: 0 for attention only.
    """
    d_model, n_heads, d_head = width
    real = alphabet.task.kind == "real"
    return DecoderConfig(
        d_vocab=alphabet.d_vocab,
        d_model=d_model,
        n_layers=depth,
        n_heads=n_heads,
        n_ctx=alphabet.task.length + 1,
        d_vocab_out=1 if real else None,
        d_head=d_head,
        d_mlp=d_mlp,
        mask="none",
        final_gain="none",
        activation="gelu",
        biases="mlp",
        head="affine" if real else "tied",
        gamma=0.5,
        embedding_std=1.0,
        key_query_identity=multiplier if identity in ("a", "ab", "orthogonal") else 0.0,
        value_output_identity=multiplier if identity in ("b", "ab") else 0.0,
        matching="orthogonal" if identity == "orthogonal" else "identity",
    )


def transformer(
    shape: DecoderConfig, *, scale: float = 1.0, generator: Generator
) -> Decoder:
    """The network before training; `scale` multiplies all weights of the blocks."""
    model = Decoder(shape, generator=generator)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".W_" in name:
                weight.mul_(DEFAULT_SCALE * scale)
            elif name == "unembedding":
                weight.mul_(DEFAULT_SCALE)
    return model


@torch.no_grad()
def start_near_identity(model: Decoder, *, generator: Generator) -> Decoder:
    """Mimetic initialisation: every W_Q W_K^T / sqrt(d_head) near 0.7 (Z + I).

    The best rank-d_head factors of 0.7 Z + 0.7 I, Z with entries N(0, 1/d_model);
    Trockman and Kolter 2023, "Mimetic Initialization of Self-Attention Layers".
    """
    d_model, d_head = model.config.d_model, model.config.head_size
    for block in model.blocks:
        shape = (model.config.n_heads, d_model, d_model)
        noise = torch.randn(shape, generator=generator) * d_model**-0.5
        near = MIMETIC_WEIGHT * (noise + torch.eye(d_model))
        left, values, right = torch.linalg.svd(near * d_head**0.5)
        root = rearrange(values[:, :d_head].sqrt(), "head d -> head 1 d")
        block.attn.W_Q.copy_(left[..., :d_head] * root)
        block.attn.W_K.copy_(right.mT[..., :d_head] * root)
    return model
