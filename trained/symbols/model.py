"""The study's networks.

The transformer is bidirectional, read at CLS, with scalars a and b per head:
`scores_h = x W_Q W_K^T x^T / sqrt(d_head) + m a_h x x^T` and
`out += m sum_h b_h A_h x`, x being the LayerNorm's output and m the multiplier. Both
scalars start at 0, where the network is the vanilla one to the last bit. Section 5 and
Appendix B of "When can transformers reason with abstract symbols?" Beside it stand
networks without attention: an MLP whose input is a concatenation of one-hots cannot
tell unseen symbols apart in expectation; given the incidence matrix X X^T it need not
look at symbols at all.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from trained.decoder import Decoder, DecoderConfig
from trained.task import Batch

from .config import Scaled
from .sampler import Alphabet
from .setting import Identity

Tokens = Int[Tensor, "batch pos"]
Answers = Float[Tensor, "batch 1 out"]
"""One number each, or what a wider readout says."""
Vectors = Float[Tensor, "batch d"]

MATCHING: dict[Identity, Literal["orthogonal", "scores"]] = {
    "aQ": "orthogonal",
    "a_scores": "scores",
}
DEFAULT_SCALE = 3**-0.5
"""A weight with d inputs starts with standard deviation (3 d)^-1/2, as torch's do."""


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
        key_query_identity=multiplier if "a" in identity else 0.0,
        value_output_identity=multiplier if "b" in identity else 0.0,
        matching=MATCHING.get(identity, "identity"),
        copying="orthogonal" if identity == "bQ" else "identity",
    )


def transformer(
    shape: DecoderConfig,
    *,
    scale: float = 1.0,
    scaled: Scaled = "weights",
    generator: Generator,
) -> Decoder:
    """The network before training, all weights of the blocks or its scores scaled."""
    model = Decoder(shape, generator=generator)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".W_" in name or name == "unembedding":
                weight.mul_(DEFAULT_SCALE)
            if scaled == "weights" and ".W_" in name:
                weight.mul_(scale)
            if scaled == "scores" and name.endswith(("W_Q", "W_K")):
                weight.mul_(scale**0.5)
    return model


@torch.no_grad()
def start_near_identity(
    model: Decoder, weight: float, *, generator: Generator
) -> Decoder:
    """Mimetic initialisation: every W_Q W_K^T / sqrt(d_head) near weight (Z + I).

    The best rank-d_head factors of it, Z with entries N(0, 1/d_model);
    Trockman and Kolter 2023, "Mimetic Initialization of Self-Attention Layers".
    """
    d_model, d_head = model.config.d_model, model.config.head_size
    for block in model.blocks:
        shape = (model.config.n_heads, d_model, d_model)
        noise = torch.randn(shape, generator=generator) * d_model**-0.5
        near = weight * (noise + torch.eye(d_model))
        left, values, right = torch.linalg.svd(near * d_head**0.5)
        root = rearrange(values[:, :d_head].sqrt(), "head d -> head 1 d")
        block.attn.W_Q.copy_(left[..., :d_head] * root)
        block.attn.W_K.copy_(right.mT[..., :d_head] * root)
    return model


class Perceptron(HookedRootModule):
    """Three linear layers with ReLU on concatenated one-hots, for real labels.

    With `incidence` the flattened matrix [x_i = x_j] joins the input, the string's own
    or, as a control, that of the string before it in the batch. CLS is left out.
    """

    def __init__(
        self,
        alphabet: Alphabet,
        *,
        width: int,
        incidence: Literal["none", "own", "foreign"] = "none",
        generator: Generator,
    ):
        super().__init__()
        length, self.d_vocab = alphabet.task.length, alphabet.d_vocab
        self.incidence = incidence
        given = incidence != "none"
        d_in = length * self.d_vocab + (length**2 if given else 0)
        self.tokens = _weight(length * self.d_vocab, width, d_in, generator)
        if given:
            self.matches = _weight(length**2, width, d_in, generator)
        self.bias = nn.Parameter(torch.zeros(width))
        self.hidden = _weight(width, width, width, generator)
        self.hidden_bias = nn.Parameter(torch.zeros(width))
        self.readout = _weight(width, 1, width, generator)
        self.readout_bias = nn.Parameter(torch.zeros(1))
        self.hook_logits = HookPoint()
        self.setup()

    def forward(self, tokens: Tokens) -> Answers:
        """The answer to every string."""
        strings = tokens[:, :-1]
        places = torch.arange(strings.shape[1], device=tokens.device) * self.d_vocab
        first = F.embedding(strings + places, self.tokens).sum(1) + self.bias
        if self.incidence != "none":
            equal = strings[:, :, None] == strings[:, None, :]
            equal = equal.roll(1, 0) if self.incidence == "foreign" else equal
            first = first + equal.flatten(1).to(first.dtype) @ self.matches
        second = F.relu(first) @ self.hidden + self.hidden_bias
        answers = F.relu(second) @ self.readout + self.readout_bias
        return self.hook_logits(rearrange(answers, "batch out -> batch 1 out"))


class Recurrent(HookedRootModule):
    """One recurrent layer (tanh RNN or LSTM) read at CLS, for real labels."""

    def __init__(
        self,
        alphabet: Alphabet,
        *,
        width: int,
        cell: Literal["rnn", "lstm"],
        generator: Generator,
    ):
        super().__init__()
        self.cell, self.width = cell, width
        gates = 4 if cell == "lstm" else 1
        self.W_E = nn.Parameter(
            torch.randn(alphabet.d_vocab, width, generator=generator)
        )
        self.inward = _weight(width, gates * width, width, generator)
        self.again = _weight(width, gates * width, width, generator)
        self.bias = nn.Parameter(torch.zeros(gates * width))
        self.readout = _weight(width, 1, width, generator)
        self.readout_bias = nn.Parameter(torch.zeros(1))
        self.hook_logits = HookPoint()
        self.setup()

    def forward(self, tokens: Tokens) -> Answers:
        """The answer after the last token of every string."""
        inputs = F.embedding(tokens, self.W_E) @ self.inward + self.bias
        state = inputs.new_zeros(len(tokens), self.width)
        memory = state
        for step in inputs.unbind(1):
            drive = step + state @ self.again
            if self.cell == "rnn":
                state = drive.tanh()
            else:
                state, memory = _gated(drive, memory)
        answers = state @ self.readout + self.readout_bias
        return self.hook_logits(rearrange(answers, "batch out -> batch 1 out"))


def _gated(drive: Tensor, memory: Vectors) -> tuple[Vectors, Vectors]:
    """State and memory of an LSTM after one step (Hochreiter and Schmidhuber 1997)."""
    keep, write, show, content = drive.chunk(4, dim=-1)
    memory = keep.sigmoid() * memory + write.sigmoid() * content.tanh()
    return show.sigmoid() * memory.tanh(), memory


def _weight(rows: int, columns: int, d_in: int, generator: Generator) -> nn.Parameter:
    """Uniform in +- d_in^-1/2, as torch starts a linear layer."""
    draw = torch.rand(rows, columns, generator=generator) * 2 - 1
    return nn.Parameter(draw * d_in**-0.5)


class Readout(nn.Module):
    """The readout of a transformer whose other weights are frozen.

    What these make of every string is computed once; a string's only token is its
    number (see `numbered`).
    """

    features: Tensor

    def __init__(self, model: Decoder, strings: Iterable[Batch]) -> None:
        super().__init__()
        assert model.b_U is not None
        self.unembedding, self.b_U = model.unembedding, model.b_U
        with torch.no_grad():
            parts = [
                model.ln_final(model.through(model.embed(part.tokens))[:, -1:])[:, 0]
                for split in strings
                for part in split.chunks(1024)
            ]
        self.register_buffer("features", torch.cat(parts), persistent=False)

    def forward(self, numbers: Int[Tensor, "batch 1"]) -> Answers:
        """The answer to every string."""
        seen = F.embedding(numbers, self.features)
        return seen @ self.unembedding + self.b_U


def numbered(splits: Mapping[str, Batch]) -> dict[str, Batch]:
    """Splits whose strings are replaced by their numbers, counted over all splits."""
    found, start = {}, 0
    for name, strings in splits.items():
        numbers = torch.arange(start, start + len(strings))[:, None]
        found[name] = Batch(numbers, strings.targets)
        start += len(strings)
    return found
