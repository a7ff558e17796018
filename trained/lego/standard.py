"""The same reader as an ordinary transformer: learned tokens, heads and a wide FFN.

A clause is the concatenation of its five token embeddings, the blank's being zero, so
d_model is five times the token width. One block, ReLU; the residual stream, a LayerNorm
before both parts and learned positions are options, all off as in the paper's theory.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Generator, Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from .folded import Places, Prediction, Tokens, places
from .sentences import N_SLOTS, Vocabulary

Residual = Float[Tensor, "batch clause d_model"]
Queries = Float[Tensor, "batch query d_model"]


@dataclass(frozen=True)
class StandardConfig:
    """The choices that the paper leaves open."""

    d_token: int = 64
    n_heads: int = 2
    d_mlp: int = 512
    residual: Literal["none", "added"] = "none"
    norm: Literal["none", "layer"] = "none"
    n_positions: int = 0
    """Clauses with a learned position; 0: no positions."""

    @property
    def d_model(self) -> int:
        """The width of a clause."""
        return N_SLOTS * self.d_token

    @property
    def d_head(self) -> int:
        """The width of a head."""
        return self.d_model // self.n_heads


class StandardAttention(nn.Module):
    """Heads in which the answers ask all clauses before them."""

    def __init__(self, config: StandardConfig, *, generator: Generator) -> None:
        super().__init__()
        shape = (config.n_heads, config.d_model, config.d_head)
        std = config.d_model**-0.5
        self.W_Q = _normal(shape, std, generator)
        self.W_K = _normal(shape, std, generator)
        self.W_V = _normal(shape, std, generator)
        self.W_O = _normal((shape[0], shape[2], shape[1]), std, generator)
        self.scale = config.d_head**-0.5
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_v, self.hook_result = HookPoint(), HookPoint()

    def forward(self, clauses: Residual, asking: Queries, at: Places) -> Queries:
        """What the heads write at every query."""
        project = (
            "batch clause d_model, head d_model d_head -> batch clause head d_head"
        )
        query = einsum(asking, self.W_Q, project)
        key = einsum(clauses, self.W_K, project)
        value = self.hook_v(einsum(clauses, self.W_V, project))
        match = "batch query head d, batch key head d -> batch head query key"
        scores = einsum(query, key, match) * self.scale
        scores = scores.masked_fill(~at.visible, -torch.inf)
        pattern = self.hook_pattern(self.hook_attn_scores(scores).softmax(-1))
        gather = "batch head query key, batch key head d -> batch query head d"
        write = "batch query head d, head d d_model -> batch query head d_model"
        result = einsum(einsum(pattern, value, gather), self.W_O, write)
        return self.hook_result(result).sum(2)


class StandardMLP(nn.Module):
    """Two linear maps with a ReLU between them."""

    def __init__(self, config: StandardConfig, *, generator: Generator) -> None:
        super().__init__()
        d_model, d_mlp = config.d_model, config.d_mlp
        self.W_in = _normal((d_model, d_mlp), d_model**-0.5, generator)
        self.b_in = nn.Parameter(torch.zeros(d_mlp))
        self.W_out = _normal((d_mlp, d_model), d_mlp**-0.5, generator)
        self.b_out = nn.Parameter(torch.zeros(d_model))
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, x: Queries) -> Queries:
        """What the FFN writes."""
        post = self.hook_post(self.hook_pre(x @ self.W_in + self.b_in).relu())
        return post @ self.W_out + self.b_out


class StandardBlock(nn.Module):
    """Attention, then the FFN, each with or without norm and residual."""

    def __init__(self, config: StandardConfig, *, generator: Generator) -> None:
        super().__init__()
        self.keeps = float(config.residual == "added")
        self.ln1, self.ln2 = _norm(config), _norm(config)
        self.attn = StandardAttention(config, generator=generator)
        self.mlp = StandardMLP(config, generator=generator)
        self.hook_attn_out, self.hook_mlp_out = HookPoint(), HookPoint()
        self.hook_resid_pre, self.hook_resid_mid = HookPoint(), HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(self, clauses: Residual, at: Places) -> Queries:
        """The state of every query after the block."""
        clauses = self.hook_resid_pre(clauses)
        normed = self.ln1(clauses)
        asks = at.n_predicates + at.queries
        attended = self.attn(normed, normed[:, asks], at)
        mid = self.keeps * clauses[:, asks] + self.hook_attn_out(attended)
        mid = self.hook_resid_mid(mid)
        written = self.hook_mlp_out(self.mlp(self.ln2(mid)))
        return self.hook_resid_post(self.keeps * mid + written)


class StandardModel(HookedRootModule):
    """One block between token embeddings and two output heads."""

    def __init__(
        self, vocabulary: Vocabulary, config: StandardConfig, *, generator: Generator
    ) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, config
        std = config.d_token**-0.5
        # The blank, the last token, has no row: it is the zero vector.
        self.W_E = _normal((vocabulary.size - 1, config.d_token), std, generator)
        positions = (config.n_positions, config.d_model)
        self.W_pos = _normal(positions, 0.02, generator)
        self.blocks = nn.ModuleList([StandardBlock(config, generator=generator)])
        n_outputs = vocabulary.n_variables + vocabulary.n_values
        self.W_U = _normal((config.d_model, n_outputs), config.d_model**-0.5, generator)
        self.hook_embed, self.hook_logits = HookPoint(), HookPoint()
        self.setup()

    def forward(
        self,
        tokens: Tokens,
        *,
        n_predicates: int | None = None,
        queries: slice = slice(None),
    ) -> Prediction:
        """Predict the clause after every querying answer; see `FoldedModel`."""
        at = places(tokens, n_predicates, queries)
        clauses = self.hook_embed(self._embed(tokens))
        logits = self.hook_logits(self.blocks[0](clauses, at) @ self.W_U)
        n = self.vocabulary.n_variables
        return Prediction(logits[..., :n], logits[..., n:])

    def _embed(self, tokens: Tokens) -> Residual:
        table = torch.cat([self.W_E, torch.zeros_like(self.W_E[:1])])
        clauses = rearrange(
            table[tokens], "batch clause slot d -> batch clause (slot d)"
        )
        if self.config.n_positions:
            clauses = clauses + self.W_pos[: tokens.shape[1]]
        return clauses


def _norm(config: StandardConfig) -> nn.Module:
    if config.norm == "none":
        return nn.Identity()
    return nn.LayerNorm(config.d_model)


def _normal(shape: tuple[int, ...], std: float, generator: Generator) -> nn.Parameter:
    return nn.Parameter(std * torch.randn(shape, generator=generator))
