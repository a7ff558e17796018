"""The theory's transformer: one head, one FFN of smoothed ReLUs, fixed bias, clip.

    A        = softmax over visible clauses of Q43[x4(q), x3(k)] + Q44[x4(q), x4(k)]
    h(q)     = sum_k A(q, k) Z_k
    [F_i]_j  = min(B, sum_r sReLU(<W_ijr, h> + b))

for slots i = 4 (next variable) and i = 5 (next value) of the next clause, which are
drawn independently from softmax(F_i) (Definitions 3.4 and 3.5, Assumptions 3.3 to 3.5
of "Transformers Provably Learn Chain-of-Thought Reasoning with Length
Generalization"). Z_k is the clause itself, five one-hot slots side by side, the blank
zero. b = s log d and B = 2 log d with s = d^(-1/2); Q starts at zero and W as
N(0, s^2). The blanks of slots 1 to 3 are deterministic and left out; classes of slots 4
and 5 that are never right keep their initial logit, which is below 1e-3 and taken as 0.
"""

import math

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn.functional import embedding
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from .folded import ByVariable, Pattern, Places, Prediction, Tokens, places
from .sentences import Vocabulary

POWER = 10
"""q of the smoothed ReLU, a large even integer."""
KNEE = 1.0
"""rho of the smoothed ReLU, where it becomes linear."""
CLIP = 2.0
"""C_B: logits are clipped at C_B log d."""
VARIABLE_NEURONS, VALUE_NEURONS = 4, 16
"""m of each class of slot 4, and the least of slot 5, which has two per value: with
one, some pair of an action and a value often finds no neuron of its own."""


def smooth_relu(z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """0 up to 0, z^q / (q rho^(q-1)) up to rho, then z - rho (1 - 1/q) (Def. 3.4).

    As printed the power would also hold on (-rho, 0), where for even q it is positive,
    falls, and jumps at -rho; 0 there is what makes it a smoothed ReLU.

    >>> smooth_relu(torch.tensor([-0.5, 1.0, 3.0])).tolist()
    [0.0, 0.10000000149011612, 2.0999999046325684]
    """
    # A tangent whose slope and level are constants: right in value and first slope,
    # and several times as fast as differentiating the power.
    point = z.detach()
    low = (point / KNEE).clamp(0, 1)
    slope = _power(low, POWER - 1)
    value = (point - KNEE).clamp_min(0) + low * slope * (KNEE / POWER)
    return value + (z - point) * slope


def loss_floor(d: int) -> float:
    """The least cross-entropy over d classes whose logits lie in [0, C_B log d]."""
    return math.log1p((d - 1) * d**-CLIP)


_Filled = tuple[Tensor, Tensor, slice]


class Neurons(nn.Module):
    """The FFN of one output slot: m neurons for each of its classes."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        n_classes: int,
        n_neurons: int,
        *,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.vocabulary, self.shape = vocabulary, (n_classes, n_neurons)
        n = vocabulary
        tokens = (n.n_variables, n.n_actions, n.n_variables, n.n_variables, n.n_values)
        std = vocabulary.size**-0.5
        self.bias = std * math.log(vocabulary.size)
        self.clip = CLIP * math.log(vocabulary.size)
        self.W1, self.W2, self.W3, self.W4, self.W5 = (
            nn.Parameter(std * torch.randn(count, *self.shape, generator=generator))
            for count in tokens
        )
        self.hook_in, self.hook_pre, self.hook_post = (HookPoint() for _ in range(3))

    def forward(
        self, pattern: Pattern, tokens: Tokens, at: Places
    ) -> Float[Tensor, "batch query n_classes"]:
        """The clipped logits of the slot's classes."""
        filled = self._filled(tokens, at.n_predicates)
        # Few neurons: look up <W, Z_k>, then mix. Many: mix the Z_k, then multiply.
        few = self.shape[0] * self.shape[1] < 200
        received = (self._looked_up if few else self._mixed)(pattern[:, 0], filled)
        n_classes = self.shape[0]
        return self.logits(rearrange(received, "b q (j r) -> b q j r", j=n_classes))

    def logits(
        self, received: Float[Tensor, "*batch n_classes neuron"]
    ) -> Float[Tensor, "*batch n_classes"]:
        """The clipped logits from what attention brings to the neurons, <W, h>."""
        pre = self.hook_pre(self.hook_in(received) + self.bias)
        return self.hook_post(smooth_relu(pre)).sum(-1).clamp_max(self.clip)

    def _filled(self, tokens: Tokens, n_predicates: int) -> list[_Filled]:
        """The filled slots: W's rows, which of them, and whose clauses' slots."""
        predicates, answers = slice(None, n_predicates), slice(n_predicates, None)
        n, slot = self.vocabulary, tokens.unbind(-1)
        return [
            (self.W1, slot[0][:, predicates], predicates),
            (self.W2, slot[1][:, predicates] - n.first_action, predicates),
            (self.W3, slot[2][:, predicates], predicates),
            (self.W4, slot[3][:, answers], answers),
            (self.W5, slot[4][:, answers] - n.first_value, answers),
        ]

    @staticmethod
    def _looked_up(weights: Tensor, filled: list[_Filled]) -> Tensor:
        """sum_k A(q, k) <W, Z_k>."""
        rows = [embedding(row, table.flatten(1)) for table, row, _ in filled]
        values = torch.cat([rows[0] + rows[1] + rows[2], rows[3] + rows[4]], 1)
        return weights @ values

    @staticmethod
    def _mixed(weights: Tensor, filled: list[_Filled]) -> Tensor:
        """<W, sum_k A(q, k) Z_k>, slot by slot."""
        parts = []
        for table, row, clauses in filled:
            own = weights[..., clauses]
            empty = own.new_zeros(*own.shape[:2], len(table))
            mixed = empty.scatter_add(-1, row[:, None].expand(own.shape), own)
            parts.append(mixed @ table.flatten(1))
        return torch.stack(parts).sum(0)


class TheoryAttention(nn.Module):
    """One head whose only blocks are Q43 and Q44."""

    def __init__(self, n_variables: int) -> None:
        super().__init__()
        self.key_query = ByVariable(1, n_variables)
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()

    def forward(self, tokens: Tokens, at: Places, key_query: nn.Module) -> Pattern:
        """The attention of every query."""
        scores = key_query(tokens, at).masked_fill(~at.visible, -torch.inf)
        return self.hook_pattern(self.hook_attn_scores(scores).softmax(-1))


class TheoryBlock(nn.Module):
    """The head, then one group of neurons for each predicted slot."""

    def __init__(self, vocabulary: Vocabulary, *, generator: Generator) -> None:
        super().__init__()
        n, y = vocabulary.n_variables, vocabulary.n_values
        self.attn = TheoryAttention(n)
        self.variable = Neurons(vocabulary, n, VARIABLE_NEURONS, generator=generator)
        m = max(VALUE_NEURONS, 2 * y)
        self.value = Neurons(vocabulary, y, m, generator=generator)


class TheoryModel(HookedRootModule):
    """The model of both algorithms, with a frozen copy of Q that can label data."""

    def __init__(self, vocabulary: Vocabulary, *, generator: Generator) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.blocks = nn.ModuleList([TheoryBlock(vocabulary, generator=generator)])
        self.annotator = ByVariable(1, vocabulary.n_variables)
        self.hook_logits = HookPoint()
        self.setup()

    def forward(
        self,
        tokens: Tokens,
        *,
        n_predicates: int | None = None,
        queries: slice = slice(None),
        key_query: nn.Module | None = None,
    ) -> Prediction:
        """Predict the clause after every querying answer; see `FoldedModel`."""
        at = places(tokens, n_predicates, queries)
        pattern = self.block.attn(tokens, at, key_query or self.tables)
        slots = (self.block.variable, self.block.value)
        logits = torch.cat([slot(pattern, tokens, at) for slot in slots], -1)
        logits = self.hook_logits(logits)
        n = self.vocabulary.n_variables
        return Prediction(logits[..., :n], logits[..., n:])

    def value_logits(
        self,
        tokens: Tokens,
        *,
        n_predicates: int | None = None,
        queries: slice = slice(None),
        key_query: nn.Module | None = None,
    ) -> Float[Tensor, "batch query n_values"]:
        """The value's logits alone, all that the attention is trained on."""
        at = places(tokens, n_predicates, queries)
        pattern = self.block.attn(tokens, at, key_query or self.tables)
        return self.block.value(pattern, tokens, at)

    def variable_logits(
        self, tokens: Tokens
    ) -> Float[Tensor, "batch query n_variables"]:
        """The variable's logits alone."""
        at = places(tokens, None, slice(None))
        pattern = self.block.attn(tokens, at, self.tables)
        return self.block.variable(pattern, tokens, at)

    @property
    def block(self) -> TheoryBlock:
        """The one block."""
        block = self.blocks[0]
        assert isinstance(block, TheoryBlock)
        return block

    @property
    def tables(self) -> ByVariable:
        """Q43 and Q44."""
        return self.block.attn.key_query


def _power(base: Tensor, exponent: int) -> Tensor:
    """A whole power by repeated squaring; torch's own is ten times as slow."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2)
    square = half * half
    return square * base if exponent % 2 else square
