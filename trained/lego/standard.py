"""The paper's experiment: a one-layer transformer, all parameters trained at once.

A clause is the concatenation of its five token embeddings, the blank's being zero, so
d_model is five times the token width. Embeddings start as N(0, 1). One block, ReLU; the
residual stream, a LayerNorm before both parts and learned positions are options, all
off as in the paper's theory. Adam at 1e-4 for 300 epochs on the next clause at the
training length; the paper states neither the number of sentences nor the width.
"""

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Generator, Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from trained.arm import Arm, Stage, adam
from trained.seeding import generator as seeded

from .action import action
from .config import Config, Variant
from .model import Places, places
from .task import (
    N_SLOTS,
    Clauses,
    Prediction,
    Sentences,
    Tokens,
    Vocabulary,
    clause_losses,
    draw_sentences,
    table_of,
)

Residual = Float[Tensor, "batch clause d_model"]
Queries = Float[Tensor, "batch query d_model"]


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
        post = self.hook_post(self.hook_pre(x @ self.W_in + self.b_in).relu())
        return post @ self.W_out + self.b_out


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
        self, vocabulary: Vocabulary, config: Sizes, *, generator: Generator
    ) -> None:
        super().__init__()
        self.vocabulary, self.config = vocabulary, config
        # The blank, the last token, has no row: it is the zero vector.
        self.W_E = _normal((vocabulary.size - 1, config.d_token), 1.0, generator)
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
        slots = self.vocabulary.slots(tokens)
        at = places(slots, n_predicates, queries)
        clauses = self.hook_embed(self._embed(slots))
        logits = self.hook_logits(self.block(clauses, at) @ self.W_U)
        n = self.vocabulary.n_variables
        return Prediction(logits[..., :n], logits[..., n:])

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


def _norm(config: Sizes) -> nn.Module:
    return nn.LayerNorm(config.d_model) if config.norm else nn.Identity()


def _normal(shape: tuple[int, ...], std: float, generator: Generator) -> nn.Parameter:
    return nn.Parameter(std * torch.randn(shape, generator=generator))


def standard_name(group: str, variant: Variant) -> str:
    """The arm of a group's transformer."""
    return f"{action(group).slug}-standard-{variant}"


def standard_arms(config: Config) -> list[Arm]:
    """Every variant for every action."""
    recipe = config.standard
    return [standard_arm(config, g, v) for g in recipe.groups for v in recipe.variants]


def standard_arm(config: Config, group: str, variant: Variant) -> Arm:
    """One transformer, trained by the paper's recipe."""
    act = action(group)
    length, recipe = config.train_length, config.standard
    vocabulary = Vocabulary.of(act, recipe.n_variables)

    def build(seed: int) -> StandardModel:
        source = seeded(seed, "lego", "standard", act.slug)
        return StandardModel(vocabulary, Sizes.of(config, variant), generator=source)

    def data(seed: int, count: int, name: str) -> Sentences:
        source = seeded(seed, "lego", act.slug, "standard", name)
        return draw_sentences(
            table_of(act),
            count,
            length,
            n_variables=recipe.n_variables,
            generator=source,
        )

    def loss(model: StandardModel, sentences: Sentences) -> Tensor:
        prediction = model(sentences.tokens(vocabulary))
        return torch.stack(clause_losses(prediction, sentences)).sum()

    per_epoch = -(-recipe.n_sentences // recipe.batch)
    stage = Stage(
        name="all",
        steps=recipe.epochs * per_epoch,
        optimiser=adam(recipe.rate),
        loss=loss,
        data=lambda seed, _step: data(seed, recipe.n_sentences, "train"),
        batch_size=recipe.batch,
    )
    return Arm(
        name=standard_name(group, variant),
        build=build,
        stages=(stage,),
        metrics={"held_out_loss": loss},
        held_out=lambda seed: data(seed, recipe.n_held_out, "test"),
        record_every=per_epoch,
    )
