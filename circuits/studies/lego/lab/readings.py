"""What is read off one model: which steps are right, and its folded tables."""

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from trained.lego.standard import StandardModel
from trained.lego.task import N_SLOTS

Tables = Float[Tensor, "table head variable variable2"]
"""Q43 and Q44."""


@dataclass(frozen=True)
class Marks:
    """Which steps are right when the true past is given."""

    variable: Bool[Tensor, "sentence step"]
    value: Bool[Tensor, "sentence step"]

    @property
    def step(self) -> float:
        """Share of right values over all steps [per-step accuracy]."""
        return float(self.value.double().mean())

    @property
    def all(self) -> float:
        """Share of sentences whose greedy rollout has every value right.

        A rollout first errs where the model errs given the true past; a test runs
        both. The last variable is never read.
        """
        right = self.value.all(1) & self.variable[:, :-1].all(1)
        return float(right.double().mean())


def folded_tables(model: StandardModel) -> Tables:
    """E W_Q W_K^T E^T of slot 4 with slots 3 and 4, head by head, as scores."""
    attn, n = model.block.attn, model.vocabulary.n_variables
    by_slot = "head (slot d_token) d_head -> slot head d_token d_head"
    asks, keys = (
        rearrange(weight, by_slot, slot=N_SLOTS) for weight in (attn.W_Q, attn.W_K)
    )
    names, product = model.W_E[:n], "x d, head d h, head d2 h, x2 d2 -> head x x2"
    return attn.scale * torch.stack(
        [einsum(names, asks[3], keys[slot], names, product) for slot in (2, 3)]
    )
