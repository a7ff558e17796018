"""Networks without attention on the same strings: an MLP, an RNN, an LSTM.

An MLP whose input is a concatenation of one-hots cannot tell unseen symbols apart in
expectation; given the incidence matrix X X^T it need not look at symbols at all.
"""

from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from .sampler import Alphabet

Tokens = Int[Tensor, "batch pos"]
Answers = Float[Tensor, "batch 1 1"]
Vectors = Float[Tensor, "batch d"]


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
