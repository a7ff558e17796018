"""The theory model with its proved features put in by hand: two numbers are left.

Q43 and Q44 are alpha and beta on their diagonals and 0 elsewhere. The FFN has one
neuron for every pair (j, y), with the features of Theorems B.1 and C.1,

    pre(j, y) = 2b (A_g[j, y] + A_y[y]) - w P - u R,    u = 2b C / (1 + C), w = 2b - u

A_g[j, y] being the attention on predicates whose action sends y to j, A_y[y] that on
answers with value y, P and R that on all predicates and on all answers. A right action
adds u and a right value w, so C = V(g) / V(y). Half the attention on each target gives
pre = b, which is B + rho (1 - 1/q) so that the logit is the clip B; half on one right
and one wrong clause gives 0.
"""

import math

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import one_hot

from .action import Action
from .sentences import Sentences, table_of
from .theory_model import CLIP, KNEE, POWER, smooth_relu
from .theory_training import slot_loss


def feature_ratio(action: Action) -> float:
    """C_alpha = (1 + n_g (n_y - 1) / n_y) / (n_y - 1 + n_g / n_y), Theorem C.1.

    The limit of V(g) / V(y): 1 if simply transitive, of order n_y for permutations.
    """
    n_g, n_y = action.n_actions, action.n_values
    return (1 + n_g * (n_y - 1) / n_y) / (n_y - 1 + n_g / n_y)


class ReducedModel(nn.Module):
    """Attention by two numbers on top of fixed features."""

    table: Int[Tensor, "g y"]

    def __init__(self, action: Action, d: int, ratio: float | None = None) -> None:
        """Zero attention; `ratio` takes the place of C_alpha."""
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(()))
        self.beta = nn.Parameter(torch.zeros(()))
        self.d, self.clip = d, CLIP * math.log(d)
        ratio = feature_ratio(action) if ratio is None else ratio
        self.height = self.clip + KNEE * (1 - 1 / POWER)
        self.right_action = 2 * self.height * ratio / (1 + ratio)
        self.right_value = 2 * self.height - self.right_action
        self.register_buffer("table", table_of(action), persistent=False)

    def pattern(self, length: int) -> Float[Tensor, "query key"]:
        """The attention of every query, the same for all sentences."""
        step = torch.eye(length, device=self.table.device)
        future = torch.ones_like(step).triu(1).bool()
        answers = (self.beta * step).masked_fill(future, -torch.inf)
        return torch.cat([self.alpha * step, answers], 1).softmax(-1)

    def forward(self, sentences: Sentences) -> Float[Tensor, "batch query n_values"]:
        """The value's logits."""
        n_values, length = self.table.shape[1], sentences.length
        pattern = self.pattern(length)
        to_predicates, to_answers = pattern[:, :length], pattern[:, length:]
        images = one_hot(self.table[sentences.actions], n_values).float()
        values = one_hot(sentences.values[..., :-1], n_values).float()
        by_action = einsum(to_predicates, images, "q k, b k y j -> b q j y")
        by_value = einsum(to_answers, values, "q k, b k y -> b q y")
        against = self.right_value * to_predicates.sum(-1)
        against = against + self.right_action * to_answers.sum(-1)
        matched = 2 * self.height * (by_action + by_value[:, :, None])
        pre = matched - rearrange(against, "q -> q 1 1")
        return smooth_relu(pre).sum(-1).clamp_max(self.clip)


def reduced_loss(model: ReducedModel, sentences: Sentences) -> Float[Tensor, ""]:
    """Loss_5 of all steps."""
    return slot_loss(model(sentences), sentences.values[..., 1:], model.d)
