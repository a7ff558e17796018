"""Fast exact stand-ins for `RecallModel` while the memory is constructed.

`PositionScores` is partial fine-tuning: theta and omega, the only trained entries of
W_KQ in the paper's theory. `TokenScores` is the first step of full fine-tuning: its
query is always the same vector z_last, so W_KQ acts only through W_KQ z_last.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .model import RecallModel
from .patterns import (
    answer_loss,
    pattern_counts,
    quadratic_forms,
    relation_accuracy,
    relation_loss,
)
from .prompts import Prompts


class PositionScores(nn.Module):
    """Attention by position alone: theta for the first step, omega for the second."""

    def __init__(self, n_examples: int, *, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        length = 2 * n_examples + 2
        self.theta = nn.Parameter(torch.zeros(length, dtype=dtype))
        self.omega = nn.Parameter(torch.zeros(length + 1, dtype=dtype))
        self.forms: Tensor
        forms = quadratic_forms(n_examples).to(dtype)
        self.register_buffer("forms", forms, persistent=False)

    def attention(self, _tokens: Int[Tensor, "batch key"]) -> Float[Tensor, "1 key"]:
        """One attention for all prompts."""
        return self.theta.softmax(0)[None]


class TokenScores(nn.Module):
    """score_j = b_j + phi(u_j) . c, with (b, c) = W_KQ z_last.

    (b, c) is written as scale * vector, so that an optimiser on the vector moves it
    as the same optimiser on the whole matrix would: a gradient step of rate eta on
    W_KQ moves W_KQ z_last by eta |z_last|^2 = 2 eta times its gradient (scale
    sqrt(2)); an Adam step moves it by its rate times |z_last|_1 (that scale).
    """

    def __init__(
        self,
        embedding: Float[Tensor, "d_vocab d_model"],
        n_examples: int,
        *,
        optimiser: Literal["gd", "adam"],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        length = 2 * n_examples + 2
        scale = embedding.new_tensor(2**0.5)
        if optimiser == "adam":
            scale = 1 + embedding[-1].abs().sum()
        # W_KQ starts as N(0, 0.02^2); its product with z_last has twice the variance.
        start = torch.randn(length + embedding.shape[1], generator=generator)
        self.vector = nn.Parameter(0.02 * 2**0.5 * start / scale)
        self.scale: Tensor
        self.forms: Tensor
        self.embedding: Tensor
        self.register_buffer("scale", scale)
        self.register_buffer("embedding", embedding)
        forms = quadratic_forms(n_examples).to(embedding.dtype)
        self.register_buffer("forms", forms, persistent=False)

    def attention(self, tokens: Int[Tensor, "batch key"]) -> Float[Tensor, "batch key"]:
        """The attention of EoS in every prompt."""
        length = tokens.shape[1]
        scores = self.scale * self.vector
        by_token = self.embedding @ scores[length:]
        return (scores[:length] + by_token[tokens]).softmax(-1)


def relation_quantities(prompts: Prompts) -> dict[str, Tensor]:
    """The data of the losses below: tokens and pattern counts."""
    return {
        "tokens": prompts.relation_step().tokens,
        "counts": pattern_counts(prompts),
    }


def mean_relation_loss(
    model: PositionScores | TokenScores,
    data: dict[str, Tensor],
    *,
    temperature: float,
) -> Float[Tensor, ""]:
    """Mean cross-entropy of the relation."""
    attention = model.attention(data["tokens"])
    return relation_loss(
        attention, data["counts"], model.forms, temperature=temperature
    ).mean()


def mean_relation_accuracy(
    model: PositionScores | TokenScores,
    data: dict[str, Tensor],
    *,
    tolerance: float = 1e-4,
) -> Float[Tensor, ""]:
    """Mean accuracy on the relation, ties split."""
    attention = model.attention(data["tokens"])
    return relation_accuracy(
        attention, data["counts"], model.forms, tolerance=tolerance
    ).mean()


def both_steps_loss(
    model: PositionScores,
    data: dict[str, Tensor],
    *,
    n_subjects: int,
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of the relation plus that of the answer given the relation."""
    second = answer_loss(
        model.omega.softmax(0), n_subjects=n_subjects, temperature=temperature
    )
    return mean_relation_loss(model, data, temperature=temperature) + second


@torch.no_grad()
def install(
    model: RecallModel,
    theta: Float[Tensor, " key"],
    omega: Float[Tensor, " key2"],
) -> RecallModel:
    """Write position scores into the model's W_KQ, whose other entries become 0."""
    first = theta.shape[0]
    model.W_KQ.zero_()
    model.W_KQ[:first, first - 1] = theta.to(model.W_KQ)
    model.W_KQ[: first + 1, first] = omega.to(model.W_KQ)
    return model
