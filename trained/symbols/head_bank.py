"""The attention kernel of a finite network: random embeddings and random heads.

What the infinite-width formula is checked against: Appendix H of "When can
transformers reason with abstract symbols?"
"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from .kernel import Tokens

D_HEAD = 64


def bank_kernel(
    strings: Tokens,
    d_model: int,
    *,
    n_heads: int = 1500,
    beta: float = 4.0,
    gamma: float = 1.0,
    generator: Generator,
) -> Float[Tensor, "row col"]:
    """Mean over heads of <s_h^T z(x), t_h^T z(y)> for all pairs of strings.

    z = X W_E + gamma P with entries of variance 1 / d_model; s_h is the softmax of
    head h's scores of the last token, beta q^T k / sqrt(d_head), divided by
    sqrt(1 + gamma^2): the norm of the query, which the main text absorbs into beta.
    All strings end with one token, so every head has one query: W_Q^T z and W_K q are
    drawn directly, Gaussian vectors with the law of the products. Random values and
    outputs W_V W_O^T preserve inner products on average and are left out. Converges to
    `AttentionKernel` as widths and heads grow.
    """
    length = strings.shape[1]

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    tokens, which = torch.unique(strings, return_inverse=True)
    embedding = normal(len(tokens), d_model) * d_model**-0.5
    places = normal(length, d_model) * d_model**-0.5
    z = embedding[which] + gamma * places
    inner = torch.einsum("nid,mjd->nimj", z, z)
    cooled = beta / ((1 + gamma**2) * D_HEAD) ** 0.5
    query = z[0, -1].norm() * normal(n_heads, D_HEAD)
    read = query.norm(dim=1, keepdim=True) * normal(n_heads, d_model)
    pattern = (cooled * torch.einsum("hd,nid->hni", read, z)).softmax(-1)
    return torch.einsum("hni,nimj,hmj->nm", pattern, inner, pattern) / n_heads
