"""The bilinear maps of attention heads, from the weights of any model that we know.

For states x that the norm before the attention has normalised (its gain is folded into
the matrices, its bias left out):

    scores = scale * x W_Q W_K^T x^T + (terms of biases),   head_out = A x W_V W_O

With rotary positions these are the scores of a query and a key at relative distance 0;
at distance t a rotation stands between W_Q and W_K^T. With grouped-query attention
every query head has a copy of its group's W_K and W_V.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from circuits.backends import backend_of
from circuits.backends.anatomy import HeadWeights, Inward
from circuits.hooks import Model, module_of
from circuits.models.norms import NormParts, norm_parts
from probes.weights import diagonal_score
from trained.errors import BadInput, unknown

Circuit = Literal["qk", "ov"]
"""W_Q W_K^T or W_V W_O."""


@dataclass(frozen=True)
class HeadMatrices(HeadWeights):
    """The weights of a layer's heads, with the gain of the norm before them folded in.

    Attributes:
        folded: the parts of that norm.
    """

    folded: NormParts = field(kw_only=True)

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
    weights = backend_of(module).head_weights(module, layer)
    norm = norm_parts(weights.norm, weights.W_O)
    query, key, value = (
        weight * norm.gain[:, None]
        for weight in (weights.W_Q, weights.W_K, weights.W_V)
    )
    kept = (weights.W_O.detach(), weights.scale, weights.norm, weights.bilinear)
    return HeadMatrices(query, key, value, *kept, folded=norm)
