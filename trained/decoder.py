"""Which small transformer was trained? One decoder that every study configures.

A pre-norm GPT-2 whose positions, norm, head, embedding, init scale and identity
scalings are choices of a frozen config. It carries TransformerLens' hook points and
parameter names, so `run_with_cache` and `run_with_hooks` work on it as they are, and it
holds no data-dependent control flow, so `torch.func` can stack seeds. With the default
choices it computes what Hugging Face's GPT-2 computes; a difference would refute it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args, get_origin, get_type_hints

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from .config import require
from .errors import unknown
from .softmax import over_keys


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes and choices of a `Decoder`; the defaults are those of GPT-2."""

    d_vocab: int
    d_model: int
    n_layers: int
    n_heads: int
    n_ctx: int
    d_vocab_out: int | None = None
    """Number of outputs; None for one per token (1 serves regression)."""
    d_head: int | None = None
    """None for d_model / n_heads."""
    d_mlp: int | None = None
    """None for 4 d_model; 0 leaves the MLPs out."""
    positions: Literal["learned", "none"] = "learned"
    mask: Literal["causal", "none"] = "causal"
    norm: Literal["layer", "none"] = "layer"
    final_gain: Literal["trained", "none"] = "trained"
    """Whether the final LayerNorm has a gain and a bias."""
    activation: Literal["gelu_new", "gelu", "relu"] = "gelu_new"
    biases: Literal["all", "mlp", "none"] = "all"
    head: Literal["tied", "untied", "affine"] = "tied"
    """The unembedding: the embedding itself, its own matrix, or that with a bias."""
    embedding: Literal["trained", "orthonormal"] = "trained"
    """Orthonormal rows are random and frozen."""
    init_std: float | None = None
    """Standard deviation of every weight matrix; 0.02 if gamma is not given either."""
    gamma: float | None = None
    """Instead of init_std: the standard deviation is d_in ** -gamma."""
    embedding_std: float | None = None
    """Of token and position embeddings, where it differs from the other weights."""
    score_scale: float | None = None
    """Factor on query-key products; None for 1 / sqrt(d_head)."""
    key_query_identity: float = 0.0
    """Multiplier of a trained scalar a per head, from 0: W_K W_Q^T + aI; 0 for none."""
    value_output_identity: float = 0.0
    """Multiplier of a trained scalar b per head, from 0: W_V W_O^T + bI; 0 for none."""
    matching: Literal[
        "identity", "off_diagonal", "orthogonal", "off_diagonal_orthogonal", "scores"
    ] = "identity"
    """What a weighs: x x^T; that without a position's match with itself (language
    models); as controls x Q x^T for a fixed random orthogonal Q, and the query-key
    scores themselves."""
    copying: Literal["identity", "orthogonal"] = "identity"
    """What b weighs: x, or as a control x Q."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if get_origin(hint) is Literal and value not in get_args(hint):
                raise unknown(name, value, get_args(hint))
            if name.startswith(("d_", "n_", "init_", "embedding_")):
                valid = value is None or value > 0 or (name, value) == ("d_mlp", 0)
                require(valid, f"{name}={value}: must be positive")
        whole = self.d_head is not None or self.d_model % self.n_heads == 0
        require(whole, f"n_heads={self.n_heads}: must divide d_model={self.d_model}")
        fits = self.head != "tied" or self.output_size == self.d_vocab
        require(fits, f"d_vocab_out={self.d_vocab_out}: head must be untied or affine")
        wide = self.embedding == "trained" or self.d_model >= self.d_vocab
        require(wide, f"d_model={self.d_model}: orthonormal needs >= {self.d_vocab}")
        one = self.init_std is None or self.gamma is None
        require(one, f"init_std={self.init_std}, gamma={self.gamma}: give one of them")

    @property
    def head_size(self) -> int:
        """Width of a head: d_head, or d_model / n_heads."""
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def mlp_size(self) -> int:
        """Width of the MLP: d_mlp, or 4 d_model."""
        return 4 * self.d_model if self.d_mlp is None else self.d_mlp

    @property
    def output_size(self) -> int:
        """Number of logits: d_vocab_out, or d_vocab."""
        return self.d_vocab if self.d_vocab_out is None else self.d_vocab_out

    def std(self, d_in: int) -> float:
        """Standard deviation at initialisation of a weight matrix with d_in inputs."""
        if self.gamma is not None:
            return float(d_in**-self.gamma)
        return 0.02 if self.init_std is None else self.init_std


Tokens = Int[Tensor, "batch pos"]
Offset = Int[Tensor, " batch"]
Residual = Float[Tensor, "batch pos d_model"]
Later = Float[Tensor, "batch later d_model"]
"""At the positions from some on, often all."""
Vectors = Float[Tensor, "*batch d_model"]
PerHead = Float[Tensor, "batch _ head d_head"]
Pattern = Float[Tensor, "batch head query key"]
Logits = Float[Tensor, "batch pos d_vocab"]


class Norm(nn.Module):
    """LayerNorm with or without gain and bias, or nothing; its output is hooked."""

    def __init__(self, config: DecoderConfig, gain: bool):
        super().__init__()
        layer = nn.LayerNorm(config.d_model, elementwise_affine=gain)
        self.layer = layer if config.norm == "layer" else nn.Identity()
        self.hook_normalized = HookPoint()

    def forward(self, residual: Residual) -> Residual:
        """The normalised residual."""
        return self.hook_normalized(self.layer(residual))


class Attention(nn.Module):
    """Multi-head attention with an explicit pattern and per-head results."""

    mask: Tensor
    orthogonal: Tensor

    def __init__(self, config: DecoderConfig, *, generator: Generator):
        super().__init__()
        self.config = config
        heads, d_model, d_head = config.n_heads, config.d_model, config.head_size
        inward, outward = config.std(d_model), config.std(heads * d_head)
        self.W_Q = _normal((heads, d_model, d_head), inward, generator)
        self.W_K = _normal((heads, d_model, d_head), inward, generator)
        self.W_V = _normal((heads, d_model, d_head), inward, generator)
        self.W_O = _normal((heads, d_head, d_model), outward, generator)
        self.b_Q = _zeros((heads, d_head), config.biases == "all")
        self.b_K = _zeros((heads, d_head), config.biases == "all")
        self.b_V = _zeros((heads, d_head), config.biases == "all")
        self.b_O = _zeros((d_model,), config.biases == "all")
        self.a = _zeros((heads,), config.key_query_identity != 0)
        self.b = _zeros((heads,), config.value_output_identity != 0)
        if config.matching.endswith("orthogonal") or config.copying == "orthogonal":
            rotation = _orthonormal(d_model, d_model, generator)
            self.register_buffer("orthogonal", rotation)
        future = torch.ones(config.n_ctx, config.n_ctx, dtype=torch.bool).triu(1)
        self.register_buffer("mask", future, persistent=False)
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()
        self.hook_z, self.hook_result = HookPoint(), HookPoint()

    def forward(self, x: Residual, start: int = 0) -> Later:
        """What all heads write at positions start, ..., for the normalised residual."""
        q, k, v = self._projected(x, start)
        scores = self.hook_attn_scores(self._scores(q, k, x))
        pattern = self.hook_pattern(over_keys(scores))
        z = (pattern @ v.transpose(1, 2)).transpose(1, 2)
        return self._output(self.hook_z(z), pattern, x)

    def _projected(self, x: Residual, start: int) -> list[PerHead]:
        """Queries, keys and values, out of one product where all are read everywhere.

        Where models are small, a step's time is the number of its operations.
        """
        weights, biases = (self.W_Q, self.W_K, self.W_V), (self.b_Q, self.b_K, self.b_V)
        if start:
            parts = _heads(x[:, start:], weights[:1], biases[:1])
            parts += _heads(x, weights[1:], biases[1:])
        else:
            parts = _heads(x, weights, biases)
        points = (self.hook_q, self.hook_k, self.hook_v)
        # A hook may write into what it gets, which must not be a part of something.
        return [
            point(part.clone() if heard(point) else part)
            for point, part in zip(points, parts, strict=True)
        ]

    def _scores(self, q: PerHead, k: PerHead, x: Residual) -> Pattern:
        given, default = self.config.score_scale, self.config.head_size**-0.5
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1)
        scores = scores * (default if given is None else given)
        if self.a is not None:
            a = self.config.key_query_identity * self.a[:, None, None]
            scores = scores + a * self._matches(scores, x)
        if self.config.mask == "none":
            return scores
        n_queries, n_keys = scores.shape[-2:]
        future = self.mask[n_keys - n_queries : n_keys, :n_keys]
        return scores.masked_fill(future, -torch.inf)

    def _matches(
        self, scores: Pattern, x: Residual
    ) -> Float[Tensor, "batch one_or_head q k"]:
        """What the scalars a weigh."""
        kind = self.config.matching
        if kind == "scores":
            return scores
        keys = x @ self.orthogonal if kind.endswith("orthogonal") else x
        start = x.shape[1] - scores.shape[-2]
        match = _beginning(x, start) @ keys.mT
        if kind.startswith("off_diagonal"):
            own = torch.ones(match.shape[1:], dtype=torch.bool, device=x.device)
            match = match.where(~own.triu(start).tril(start), 0)
        return match[:, None]

    def _output(self, z: PerHead, pattern: Pattern, x: Residual) -> Later:
        mixed, read = None, x
        if self.b is not None:
            b = self.config.value_output_identity * self.b[:, None, None]
            mixed = b * pattern
            read = x @ self.orthogonal if self.config.copying == "orthogonal" else x
        # Per-head results are as large as n_heads residuals, so they are formed
        # only for a listener; a hook on them therefore always fires.
        if heard(self.hook_result):
            axes = "batch q head d, head d d_model -> batch q head d_model"
            each = einsum(z, self.W_O, axes)
            if mixed is not None:
                each = each + (mixed @ read[:, None]).transpose(1, 2)
            out = self.hook_result(each).sum(dim=2)
            return out if self.b_O is None else out + self.b_O
        out = F.linear(z.flatten(2), self.W_O.flatten(0, 1).mT, self.b_O)
        return out if mixed is None else out + mixed.sum(1) @ read


def heard(point: HookPoint) -> bool:
    """Whether anything listens there."""
    return bool(point._forward_hooks or point._backward_hooks)


class MLP(nn.Module):
    """Two linear maps with an activation between them."""

    def __init__(self, config: DecoderConfig, *, generator: Generator):
        super().__init__()
        d_model, d_mlp = config.d_model, config.mlp_size
        self.activation = config.activation
        self.W_in = _normal((d_model, d_mlp), config.std(d_model), generator)
        self.b_in = _zeros((d_mlp,), config.biases != "none")
        self.W_out = _normal((d_mlp, d_model), config.std(d_mlp), generator)
        self.b_out = _zeros((d_model,), config.biases != "none")
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, x: Residual) -> Residual:
        """What the MLP writes, for the normalised residual x."""
        pre = self.hook_pre(F.linear(x, self.W_in.mT, self.b_in))
        tanh = "tanh" if self.activation == "gelu_new" else "none"
        relu = self.activation == "relu"
        post = F.relu(pre) if relu else F.gelu(pre, approximate=tanh)
        return F.linear(self.hook_post(post), self.W_out.mT, self.b_out)


class Block(nn.Module):
    """Attention, then an MLP, each read from a norm and added to the residual."""

    def __init__(self, config: DecoderConfig, *, generator: Generator):
        super().__init__()
        self.ln1 = Norm(config, gain=True)
        self.attn = Attention(config, generator=generator)
        self.mlp = None
        if config.mlp_size:
            self.ln2 = Norm(config, gain=True)
            self.mlp = MLP(config, generator=generator)
            self.hook_mlp_out = HookPoint()
        self.hook_resid_pre, self.hook_attn_out = HookPoint(), HookPoint()
        self.hook_resid_mid, self.hook_resid_post = HookPoint(), HookPoint()

    def forward(self, residual: Residual, start: int = 0) -> Later:
        """The residual after the block, at positions start, ..."""
        residual = self.hook_resid_pre(residual)
        attended = self.hook_attn_out(self.attn(self.ln1(residual), start))
        residual = _beginning(residual, start) + attended
        residual = self.hook_resid_mid(residual)
        if self.mlp is not None:
            residual = residual + self.hook_mlp_out(self.mlp(self.ln2(residual)))
        return self.hook_resid_post(residual)


class Decoder(HookedRootModule):
    """A small GPT-2, drawn from the generator and placed on the generator's device.

    `forward` is `readout(through(embed(tokens)))`; the three parts serve runs that
    start from a stored residual, stop early or need no logits.
    """

    W_E: Tensor

    def __init__(self, config: DecoderConfig, *, generator: Generator):
        super().__init__()
        self.config = config
        d_vocab, d_model = config.d_vocab, config.d_model
        std = config.embedding_std or config.std(d_model)
        if config.embedding == "orthonormal":
            self.register_buffer("W_E", _orthonormal(d_vocab, d_model, generator))
        else:
            self.W_E = _normal((d_vocab, d_model), std, generator)
        if config.positions == "learned":
            self.W_pos = _normal((config.n_ctx, d_model), std, generator)
            self.hook_pos_embed = HookPoint()
        blocks = [Block(config, generator=generator) for _ in range(config.n_layers)]
        self.blocks = cast(Sequence[Block], nn.ModuleList(blocks))
        self.ln_final = Norm(config, config.final_gain == "trained")
        if config.head != "tied":
            shape = (d_model, config.output_size)
            self.unembedding = _normal(shape, config.std(d_model), generator)
        self.b_U = _zeros((config.output_size,), config.head == "affine")
        self.hook_embed, self.hook_logits = HookPoint(), HookPoint()
        last = blocks[-1].modules()
        self._last_points = [point for point in last if isinstance(point, HookPoint)]
        self.setup()
        self.to(generator.device)

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding; of a tied head, the transposed embedding."""
        return self.W_E.mT if self.config.head == "tied" else self.unembedding

    def forward(self, tokens: Tokens, *, offset: Offset | None = None) -> Logits:
        """The logits at every position; `offset` shifts each prompt's positions."""
        return self.readout(self.through(self.embed(tokens, offset=offset)))

    def embed(self, tokens: Tokens, *, offset: Offset | None = None) -> Residual:
        """The residual before the first block."""
        n_pos, n_ctx = tokens.shape[1], self.config.n_ctx
        require(n_pos <= n_ctx, f"prompt of {n_pos} tokens: the context holds {n_ctx}")
        residual = self.hook_embed(F.embedding(tokens, self.W_E))
        if self.config.positions == "none":
            require(offset is None, "offset given: it needs positions=learned")
            return residual
        positions = torch.arange(n_pos, device=tokens.device).expand(tokens.shape)
        if offset is not None:
            positions = positions + rearrange(offset, "batch -> batch 1")
        return residual + self.hook_pos_embed(F.embedding(positions, self.W_pos))

    def through(
        self, residual: Residual, start: int = 0, stop: int | None = None
    ) -> Residual:
        """The residual after blocks start, ..., stop - 1."""
        for block in self.blocks[start:stop]:
            residual = block(residual)
        return residual

    def answer(self, tokens: Tokens) -> Float[Tensor, "batch d_vocab"]:
        """The logits after the last token: `forward(tokens)[:, -1]`, at less cost.

        Nobody reads the other positions of the last block, unless something listens.
        """
        return self.readout(self.last(tokens))[:, 0]

    def last(self, tokens: Tokens) -> Float[Tensor, "batch 1 d_model"]:
        """The residual after the last block, at the last token."""
        residual = self.through(self.embed(tokens), stop=-1)
        heard_there = any(heard(point) for point in self._last_points)
        start = 0 if heard_there else residual.shape[1] - 1
        return self.blocks[-1](residual, start)[:, -1:]

    def readout(self, residual: Residual) -> Logits:
        """The logits of the residual after the last block."""
        normalized = self.ln_final(residual)
        return self.hook_logits(F.linear(normalized, self.W_U.mT, self.b_U))

    def final_norm(self, residual: Vectors) -> Vectors:
        """The residual as the unembedding reads it; fires no hook (logit lens)."""
        return self.ln_final.layer(residual)


def answer(model: nn.Module, tokens: Tokens) -> Float[Tensor, "batch d_vocab"]:
    """The logits after the last token, of a decoder or of any other model."""
    if isinstance(model, Decoder):
        return model.answer(tokens)
    logits: Tensor = model(tokens)
    return logits[:, -1]


def _heads(
    x: Residual, weights: Sequence[Tensor], biases: Sequence[Tensor | None]
) -> list[PerHead]:
    """What several matrices [head, d_model, d_head] read, out of one product."""
    weight = torch.cat(tuple(weights)).transpose(0, 1).flatten(1)
    bias = [b for b in biases if b is not None]
    read = F.linear(x, weight.mT, torch.cat(bias).flatten() if bias else None)
    heads = rearrange(read, "b pos (head d) -> b pos head d", d=weights[0].shape[-1])
    return list(heads.chunk(len(weights), -2))


def _beginning(x: Residual, start: int) -> Later:
    # The gradient of a slice is a copy into zeros, also where it is all of it.
    return x[:, start:] if start else x


def _normal(shape: tuple[int, ...], std: float, generator: Generator) -> nn.Parameter:
    draw = torch.randn(shape, generator=generator, device=generator.device)
    return nn.Parameter(std * draw)


def _zeros(shape: tuple[int, ...], wanted: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(shape)) if wanted else None


def _orthonormal(rows: int, columns: int, generator: Generator) -> Tensor:
    draw = torch.randn(columns, rows, generator=generator, device=generator.device)
    return torch.linalg.qr(draw).Q.mT.contiguous()
