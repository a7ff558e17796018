"""Emb-MLP: token embeddings, uniform attention, a linear readout, and nothing else.

    logits(x) = sum over tokens t of x of E_t W = sum over t of Z_t,   Z = E W

(Section 3 of "Identity Bridge"; a sum, not a mean). Both factors are trained. Gradient
descent on them is biased to a small nuclear norm of Z; the unfactorised control trains
Z itself, from zero, and is biased to a small Frobenius norm instead.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from .data import World

Factors = Literal["two", "one"]
"""Z = E W with both trained, or Z itself."""

INIT_STD = 0.02


class EmbMLP(HookedRootModule):
    """The embedding model of one world, with TransformerLens' hook names.

    Inputs are all tokens but the objects, outputs bridges and objects; the logits span
    the whole vocabulary and are -inf where a token is no output.
    """

    W_U: Tensor

    def __init__(
        self,
        world: World,
        *,
        d_model: int = 64,
        factors: Factors = "two",
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        n_inputs = world.d_vocab - world.n_subjects
        n_outputs = world.n_bridges + world.n_subjects
        self.n_subjects, self.first_object = world.n_subjects, world.first_object
        if factors == "two":
            left = torch.randn(n_inputs, d_model, generator=generator)
            right = torch.randn(d_model, n_outputs, generator=generator)
            self.W_E = nn.Parameter(INIT_STD * left)
            self.W_U = nn.Parameter(INIT_STD * right)
        else:
            self.W_E = nn.Parameter(torch.zeros(n_inputs, n_outputs))
            self.register_buffer("W_U", torch.eye(n_outputs))
        self.padding = (world.n_subjects, world.complexity + 1)
        self.blocks = nn.ModuleList([_UniformBlock()])
        self.hook_embed, self.hook_logits = HookPoint(), HookPoint()
        self.setup()

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        *,
        offset: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits after every token; there are no positions for an offset to shift."""
        del offset
        residual = self.blocks[0](self.hook_embed(self.W_E[self.rows(tokens)]))
        logits = nn.functional.pad(residual @ self.W_U, self.padding, value=-torch.inf)
        return self.hook_logits(logits)

    @property
    def logit_matrix(self) -> Float[Tensor, "input output"]:
        """Z, in the order of `program.Vocabulary`: rows a, b, r1, r2; columns b, c."""
        return self.W_E @ self.W_U

    def rows(self, tokens: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """The row of Z of each input token: objects, no inputs, are skipped."""
        later = tokens - self.n_subjects
        return torch.where(tokens < self.first_object, tokens, later)


class _UniformBlock(nn.Module):
    """Every position sums itself and all before it; no skip, no MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.hook_resid_pre, self.hook_resid_post = HookPoint(), HookPoint()

    def forward(
        self, embedded: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        return self.hook_resid_post(self.hook_resid_pre(embedded).cumsum(dim=1))
