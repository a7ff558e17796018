"""The study's networks, and how their answers are scored.

The transformer is bidirectional, read at CLS, with scalars a and b per head:
`scores_h = x W_Q W_K^T x^T / sqrt(d_head) + m a_h x x^T` and
`out += m sum_h b_h A_h x`, x being the LayerNorm's output and m the multiplier. Both
scalars start at 0, where the network is the vanilla one to the last bit. Section 5 and
Appendix B of "When can transformers reason with abstract symbols?" Beside it stand
networks without attention: an MLP whose input is a concatenation of one-hots cannot
tell unseen symbols apart in expectation; given the incidence matrix X X^T it need not
look at symbols at all. Losses and metrics are written so that seeds can be stacked.
"""

from collections.abc import Mapping
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

from .sampler import Alphabet
from .setting import Identity

Tokens = Int[Tensor, "batch pos"]
Answers = Float[Tensor, "batch 1 1"]
Vectors = Float[Tensor, "batch d"]
Splits = Mapping[str, Batch]

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
        key_query_identity=multiplier if identity in ("a", "ab", "orthogonal") else 0.0,
        value_output_identity=multiplier if identity in ("b", "ab") else 0.0,
        matching="orthogonal" if identity == "orthogonal" else "identity",
    )


def transformer(
    shape: DecoderConfig, *, scale: float = 1.0, generator: Generator
) -> Decoder:
    """The network before training; `scale` multiplies all weights of the blocks."""
    model = Decoder(shape, generator=generator)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".W_" in name:
                weight.mul_(DEFAULT_SCALE * scale)
            elif name == "unembedding":
                weight.mul_(DEFAULT_SCALE)
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

    With `incidence` the flattened matrix [x_i = x_j] joins the input. CLS is left out.
    """

    def __init__(
        self, alphabet: Alphabet, *, width: int, incidence: bool, generator: Generator
    ):
        super().__init__()
        length, self.d_vocab = alphabet.task.length, alphabet.d_vocab
        self.incidence = incidence
        d_in = length * self.d_vocab + (length**2 if incidence else 0)
        self.tokens = _weight(length * self.d_vocab, width, d_in, generator)
        if incidence:
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
        if self.incidence:
            equal = strings[:, :, None] == strings[:, None, :]
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


def answers(model: nn.Module, strings: Batch) -> Float[Tensor, "batch out"]:
    """What the model says at CLS: a number, or a logit for every token but CLS."""
    said = model(strings.tokens)[:, -1]
    return said if said.shape[-1] == 1 else said[:, :-1]


def loss(model: nn.Module, strings: Batch) -> Float[Tensor, ""]:
    """Mean squared error of numbers, mean cross-entropy of tokens."""
    said = answers(model, strings)
    if strings.targets.is_floating_point():
        return (said[:, 0] - strings.targets).square().mean()
    return F.cross_entropy(said, strings.targets)


def error(model: nn.Module, strings: Batch) -> Float[Tensor, ""]:
    """Share of wrong answers: the wrong sign, or another token than the target."""
    said = answers(model, strings)
    if strings.targets.is_floating_point():
        wrong = said[:, 0].sign() != strings.targets.sign()
    else:
        wrong = said.argmax(-1) != strings.targets
    return wrong.float().mean()


def alphabet_error(
    model: nn.Module, strings: Batch, *, among: range
) -> Float[Tensor, ""]:
    """Share of wrong tokens when only those of one alphabet may be named."""
    said = answers(model, strings)[:, among.start : among.stop]
    return (said.argmax(-1) + among.start != strings.targets).float().mean()


def loss_on(model: nn.Module, data: Splits, *, split: str) -> Float[Tensor, ""]:
    """The loss on one split."""
    return loss(model, data[split])


def error_on(model: nn.Module, data: Splits, *, split: str) -> Float[Tensor, ""]:
    """The error on one split."""
    return error(model, data[split])


def alphabet_error_on(
    model: nn.Module, data: Splits, *, split: str, among: range
) -> Float[Tensor, ""]:
    """The error on one split among one alphabet."""
    return alphabet_error(model, data[split], among=among)
