"""How strong are the diagonals of a model's head matrices?

Figure 7, right: the mean diagonal entry of M = W_Q W_K^T, or W_V W_O, over the root
mean square of its other entries, the norms' gains folded in; for rotary positions at
relative distance 0. A control pairs the factors of different heads of the layer: W_Q of
one, W_K of another.
"""

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.claims import NotTested
from circuits.interventions.head_matrices import Circuit, head_matrices
from circuits.models.language_model import LanguageModel
from trained.seeding import generator

Factor = Float[Tensor, "head d_model d_head"]


def strength(left: Factor, right: Factor) -> Float[Tensor, " head"]:
    """Mean diagonal over root mean square off-diagonal entry of L R^T.

    >>> eye = torch.eye(3)[None]
    >>> strength(eye, 2 * eye + 0.5).round(decimals=2)
    tensor([5.])
    """
    width = left.shape[1]
    diagonal = einsum(left, right, "head d r, head d r -> head d")
    first, second = (f.mT @ f for f in (left, right))
    square = einsum(first, second, "head r s, head r s -> head")
    rest = (square - diagonal.square().sum(-1)).clamp_min(1e-30)
    return diagonal.mean(-1) / (rest / (width**2 - width)).sqrt()


@torch.no_grad()
def strengths(
    model: LanguageModel, circuit: Circuit, *, mismatched: int | None = None
) -> Float[Tensor, "layer head"]:
    """That of every head; `mismatched` is a seed that pairs different heads."""
    rows = []
    for layer in range(model.n_layers):
        left, right = (f.float() for f in head_matrices(model, layer).factors(circuit))
        if mismatched is not None:
            right = right[_moved(left, right, mismatched, layer)]
        rows.append(strength(left, right).cpu())
    return torch.stack(rows)


def _moved(left: Factor, right: Factor, seed: int, layer: int) -> Tensor:
    """For every head another one, that has neither of its factors."""
    source = generator(seed, "symbols", "mismatched", layer)
    size = len(left)
    # With grouped-query attention several heads have one W_K and one W_V: W_V and W_O
    # of two of them would be a match, that of the other head.
    same = _equal(left) | _equal(right)
    if bool(same.all(1).any()):
        raise NotTested("a layer's heads all have the same factor: none to mismatch")
    keys = torch.rand(size, size, generator=source).to(right.device)
    return keys.masked_fill(same, -1.0).argmax(1)


def _equal(factors: Factor) -> Bool[Tensor, "head head"]:
    return (factors[:, None] - factors[None]).abs().amax((-2, -1)) == 0
