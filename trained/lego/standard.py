"""The paper's experiment: a one-layer transformer, all parameters trained at once.

A clause is the concatenation of its five token embeddings, the blank's being zero, so
d_model is five times the token width. One block, ReLU; the residual stream, a LayerNorm
before both parts and learned positions are options, all off as in the paper's theory.
How it is trained is in `standard_arms`.
"""

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from trained.decoder import heard
from trained.softmax import over_keys

from .config import Config, Variant
from .model import Places, places
from .task import N_SLOTS, Clauses, Prediction, Tokens, Vocabulary

Residual = Float[Tensor, "batch clause d_model"]
Queries = Float[Tensor, "batch query d_model"]
Asks = Float[Tensor, "batch query head d_head"]
Keys = Float[Tensor, "batch key head d_head"]


@dataclass(frozen=True)
class Sizes:
    """A variant's sizes."""

    d_token: int
    d_mlp: int
    n_heads: int = 2
    residual: bool = False
    norm: bool = False
    n_positions: int = 0
    """Clauses with a learned position; 0: no positions."""
    token_std: float = 1.0
    """Of the embeddings before training."""
    position_std: float = 1.0
    """Of the positions before training."""

    @classmethod
    def of(cls, config: Config, variant: Variant) -> "Sizes":
        """Twice as many positions as the longest chain has steps, if there are any."""
        longest = max(config.lengths[-1], config.train_length)
        return cls(
            config.standard.d_token,
            config.standard.d_mlp,
            config.n_heads,
            residual=variant in ("residual", "norm"),
            norm=variant == "norm",
            n_positions=2 * longest if variant == "positions" else 0,
            token_std=config.standard.token_std,
            position_std=config.standard.position_std,
        )

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

    def __init__(self, config: Sizes, *, generator: Generator) -> None:
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
        value = einsum(clauses, self.W_V, project)
        return self.attended(query, key, value, at)

    def attended(self, query: Asks, key: Keys, value: Keys, at: Places) -> Queries:
        """What the heads write, from their queries, keys and values."""
        value = self.hook_v(value)
        match = "batch query head d, batch key head d -> batch head query key"
        scores = einsum(query, key, match) * self.scale
        scores = scores.masked_fill(~at.visible, -torch.inf)
        pattern = self.hook_pattern(over_keys(self.hook_attn_scores(scores)))
        gather = "batch head query key, batch key head d -> batch query head d"
        mixed = einsum(pattern, value, gather)
        # Per-head results are formed only for a listener: one product is faster.
        if heard(self.hook_result):
            write = "batch query head d, head d d_model -> batch query head d_model"
            return self.hook_result(einsum(mixed, self.W_O, write)).sum(2)
        return mixed.flatten(2) @ self.W_O.flatten(0, 1)


class StandardMLP(nn.Module):
    """Two linear maps with a ReLU between them."""

    def __init__(self, config: Sizes, *, generator: Generator) -> None:
        super().__init__()
        d_model, d_mlp = config.d_model, config.d_mlp
        self.W_in = _normal((d_model, d_mlp), d_model**-0.5, generator)
        self.b_in = nn.Parameter(torch.zeros(d_mlp))
        self.W_out = _normal((d_mlp, d_model), d_mlp**-0.5, generator)
        self.b_out = nn.Parameter(torch.zeros(d_model))
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, x: Queries) -> Queries:
        """What the FFN writes."""
        return self.hidden(x) @ self.W_out + self.b_out

    def hidden(self, x: Queries) -> Float[Tensor, "batch query d_mlp"]:
        """What its neurons say."""
        return self.hook_post(self.hook_pre(x @ self.W_in + self.b_in).relu())


class StandardBlock(nn.Module):
    """Attention, then the FFN, each with or without norm and residual."""

    def __init__(self, config: Sizes, *, generator: Generator) -> None:
        super().__init__()
        self.keeps = float(config.residual)
        self.ln1, self.ln2 = _norm(config), _norm(config)
        self.attn = StandardAttention(config, generator=generator)
        self.mlp = StandardMLP(config, generator=generator)
        self.hook_attn_out, self.hook_mlp_out = HookPoint(), HookPoint()
        self.hook_resid_pre, self.hook_resid_mid = HookPoint(), HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(self, clauses: Residual, at: Places) -> Queries:
        """The state of every query after the block, written out."""
        clauses = self.hook_resid_pre(clauses)
        normed = self.ln1(clauses)
        asks = at.n_predicates + at.queries
        attended = self.attn(normed, normed[:, asks], at)
        mid = self.keeps * clauses[:, asks] + self.hook_attn_out(attended)
        return self.after(mid)

    def after(self, mid: Queries) -> Queries:
        """The state of every query, from that before the FFN."""
        mid = self.hook_resid_mid(mid)
        written = self.hook_mlp_out(self.mlp(self.ln2(mid)))
        return self.hook_resid_post(self.keeps * mid + written)


class StandardModel(HookedRootModule):
    """One block between token embeddings and two output heads."""

    def __init__(
        self, vocabulary: Vocabulary, config: Sizes, *, generator: Generator
    ) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, config
        # The blank, the last token, has no row: it is the zero vector.
        tokens = (vocabulary.size - 1, config.d_token)
        self.W_E = _normal(tokens, config.token_std, generator)
        positions = (config.n_positions, config.d_model)
        self.W_pos = _normal(positions, config.position_std, generator)
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
        slots = self.vocabulary.slots(tokens)
        at = places(slots, n_predicates, queries)
        if self._is_lean:
            logits = self._read(self._looked_up(slots, at))
        else:
            logits = self.block(self.hook_embed(self._embed(slots)), at) @ self.W_U
        logits = self.hook_logits(logits)
        n = self.vocabulary.n_variables
        return Prediction(logits[..., :n], logits[..., n:])

    @property
    def _is_lean(self) -> bool:
        """Whether clauses need not be formed: nothing but attention reads them."""
        if self.config.residual or self.config.norm:
            return False
        return not (heard(self.hook_embed) or heard(self.block.hook_resid_pre))

    def _looked_up(self, slots: Clauses, at: Places) -> Queries:
        """What the heads write, the same function with fewer products.

        A clause's query, key and value are sums over its filled slots of a row of
        (token table) x (that slot's weights): products of tables, then lookups.
        """
        attn, n_heads = self.block.attn, self.config.n_heads
        n, slot, words = at.n_predicates, slots.unbind(-1), self.vocabulary
        sizes = [words.n_variables, words.n_actions, words.n_values]
        firsts = (0, words.first_action, words.first_value)
        x_, g_, y_ = zip(torch.split(self.W_E, sizes), firsts, strict=True)

        def rows(weights: Tensor, part: tuple[Tensor, int], chosen: Tensor) -> Tensor:
            tokens, first = part
            return F.embedding(chosen - first, tokens @ weights)

        # Unbound at once: the gradient of one slot's weights alone is a copy into
        # zeros of the size of all.
        both = _by_slot(torch.cat([attn.W_K, attn.W_V])).unbind()
        x, g, x_before = (slot[i][:, :n] for i in range(3))
        name, value = slot[3][:, n:], slot[4][:, n:]
        brought = rows(both[0], x_, x) + rows(both[1], g_, g)
        brought = brought + rows(both[2], x_, x_before)
        answered = rows(both[3], x_, name) + rows(both[4], y_, value)
        seen = torch.cat([brought, answered], 1)
        ask = _by_slot(attn.W_Q).unbind()
        query = rows(ask[3], x_, name[:, at.queries])
        query = query + rows(ask[4], y_, value[:, at.queries])
        if self.config.n_positions:
            placed = self.W_pos[: slots.shape[1]]
            seen = seen + placed @ torch.cat(both)
            query = query + (placed @ torch.cat(ask))[n + at.queries]
        heads = "batch clause (head d) -> batch clause head d"
        key, value = rearrange(seen, heads, head=2 * n_heads).chunk(2, 2)
        query = rearrange(query, heads, head=n_heads)
        return self.block.hook_attn_out(attn.attended(query, key, value, at))

    def _read(self, mid: Queries) -> Float[Tensor, "batch query out"]:
        """The logits of states before the FFN, where it keeps no residual.

        W_out W_U is one matrix with few columns, unless somebody listens between them.
        """
        block = self.block
        if heard(block.hook_mlp_out) or heard(block.hook_resid_post):
            return block.after(mid) @ self.W_U
        post = block.mlp.hidden(block.hook_resid_mid(mid))
        return post @ (block.mlp.W_out @ self.W_U) + block.mlp.b_out @ self.W_U

    @property
    def block(self) -> StandardBlock:
        """The one block."""
        block = self.blocks[0]
        assert isinstance(block, StandardBlock)
        return block

    def _embed(self, slots: Clauses) -> Residual:
        table = torch.cat([self.W_E, torch.zeros_like(self.W_E[:1])])
        clauses = rearrange(
            table[slots], "batch clause slot d -> batch clause (slot d)"
        )
        if self.config.n_positions:
            clauses = clauses + self.W_pos[: slots.shape[1]]
        return clauses


def _by_slot(
    weights: Float[Tensor, "head d_model d_head"],
) -> Float[Tensor, "slot d_token out"]:
    """What multiplies each slot's token, all heads side by side."""
    return rearrange(weights, "head (slot d) out -> slot d (head out)", slot=N_SLOTS)


def _norm(config: Sizes) -> nn.Module:
    return nn.LayerNorm(config.d_model) if config.norm else nn.Identity()


def _normal(shape: tuple[int, ...], std: float, generator: Generator) -> nn.Parameter:
    return nn.Parameter(std * torch.randn(shape, generator=generator))
