"""The theory's transformer: one head, one FFN of smoothed ReLUs, fixed bias, clip.

    A        = softmax over visible clauses of Q43[x4(q), x3(k)] + Q44[x4(q), x4(k)]
    h(q)     = sum_k A(q, k) Z_k
    [F_i]_j  = min(B, sum_r sReLU(<W_ijr, h> + b))

for slots i = 4 (next variable) and i = 5 (next value) of the next clause, which are
drawn independently from softmax(F_i) (Definitions 3.4 and 3.5, Assumptions 3.3 to 3.5
of "Transformers Provably Learn Chain-of-Thought Reasoning with Length
Generalization"). Z_k is the clause itself, five one-hot slots side by side, the blank
zero. b = s log d and B = C_B log d with s = d^(-1/2); Q starts at zero and W as
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

from .action import Action
from .config import Theory
from .model import ByVariable, Pattern, Places, places
from .task import Clauses, Prediction, Tokens, Vocabulary


def smooth_relu(
    z: Float[Tensor, "*shape"], power: int = 10, knee: float = 1.0
) -> Float[Tensor, "*shape"]:
    """0 up to 0, z^q / (q rho^(q-1)) up to rho, then z - rho (1 - 1/q) (Def. 3.4).

    As printed the power would also hold on (-rho, 0), where for even q it is positive,
    falls, and jumps at -rho; 0 there is what makes it a smoothed ReLU.

    >>> smooth_relu(torch.tensor([-0.5, 1.0, 3.0])).tolist()
    [0.0, 0.10000000149011612, 2.0999999046325684]
    """
    # A tangent whose slope and level are constants: right in value and first slope,
    # and several times as fast as differentiating the power.
    point = z.detach()
    low = (point / knee).clamp(0, 1)
    slope = _power(low, power - 1)
    value = (point - knee).clamp_min(0) + low * slope * (knee / power)
    return value + (z - point) * slope


def loss_floor(d: int, clip: float) -> float:
    """The least cross-entropy over d classes whose logits lie in [0, clip log d]."""
    return math.log1p((d - 1) * d**-clip)


def feature_ratio(action: Action) -> float:
    """C_alpha = (1 + n_g (n_y - 1) / n_y) / (n_y - 1 + n_g / n_y), Theorem C.1.

    The limit of V(g) / V(y): 1 if simply transitive, of order n_y for permutations.
    """
    n_g, n_y = action.n_actions, action.n_values
    return (1 + n_g * (n_y - 1) / n_y) / (n_y - 1 + n_g / n_y)


_Filled = tuple[Tensor, Tensor, slice]


class Neurons(nn.Module):
    """The FFN of one output slot: m neurons for each of its classes."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        n_classes: int,
        n_neurons: int,
        sizes: Theory,
        *,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.vocabulary, self.shape = vocabulary, (n_classes, n_neurons)
        self.power, self.knee = sizes.power, sizes.knee
        n = vocabulary
        tokens = (n.n_variables, n.n_actions, n.n_variables, n.n_variables, n.n_values)
        std = vocabulary.size**-0.5
        self.bias = std * math.log(vocabulary.size)
        self.clip = sizes.clip * math.log(vocabulary.size)
        self.W1, self.W2, self.W3, self.W4, self.W5 = (
            nn.Parameter(std * torch.randn(count, *self.shape, generator=generator))
            for count in tokens
        )
        self.hook_in, self.hook_pre, self.hook_post = (HookPoint() for _ in range(3))

    def forward(
        self, pattern: Pattern, clauses: Clauses, at: Places
    ) -> Float[Tensor, "batch query n_classes"]:
        """The clipped logits of the slot's classes."""
        filled = self._filled(clauses, at.n_predicates)
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
        return self.hook_post(self.relu(pre)).sum(-1).clamp_max(self.clip)

    def relu(self, pre: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The smoothed ReLU of these neurons."""
        return smooth_relu(pre, self.power, self.knee)

    def _filled(self, clauses: Clauses, n_predicates: int) -> list[_Filled]:
        """The filled slots: W's rows, which of them, and whose clauses' slots."""
        predicates, answers = slice(None, n_predicates), slice(n_predicates, None)
        n, slot = self.vocabulary, clauses.unbind(-1)
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

    def forward(self, clauses: Clauses, at: Places, key_query: nn.Module) -> Pattern:
        """The attention of every query."""
        scores = key_query(clauses, at).masked_fill(~at.visible, -torch.inf)
        return self.hook_pattern(self.hook_attn_scores(scores).softmax(-1))


class TheoryBlock(nn.Module):
    """The head, then one group of neurons for each predicted slot."""

    def __init__(
        self, vocabulary: Vocabulary, sizes: Theory, *, generator: Generator
    ) -> None:
        super().__init__()
        n, y = vocabulary.n_variables, vocabulary.n_values
        self.attn = TheoryAttention(n)
        m = sizes.variable_neurons
        self.variable = Neurons(vocabulary, n, m, sizes, generator=generator)
        m = max(sizes.value_neurons, 2 * y)
        self.value = Neurons(vocabulary, y, m, sizes, generator=generator)


class TheoryModel(HookedRootModule):
    """The model of both algorithms, with a frozen copy of Q that can label data."""

    def __init__(
        self, vocabulary: Vocabulary, sizes: Theory, *, generator: Generator
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        block = TheoryBlock(vocabulary, sizes, generator=generator)
        self.blocks = nn.ModuleList([block])
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
        clauses = self.vocabulary.slots(tokens)
        at = places(clauses, n_predicates, queries)
        pattern = self.block.attn(clauses, at, key_query or self.tables)
        slots = (self.block.variable, self.block.value)
        logits = torch.cat([slot(pattern, clauses, at) for slot in slots], -1)
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
        clauses = self.vocabulary.slots(tokens)
        at = places(clauses, n_predicates, queries)
        pattern = self.block.attn(clauses, at, key_query or self.tables)
        return self.block.value(pattern, clauses, at)

    def variable_logits(
        self, tokens: Tokens
    ) -> Float[Tensor, "batch query n_variables"]:
        """The variable's logits alone."""
        clauses = self.vocabulary.slots(tokens)
        at = places(clauses, None, slice(None))
        pattern = self.block.attn(clauses, at, self.tables)
        return self.block.variable(pattern, clauses, at)

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
