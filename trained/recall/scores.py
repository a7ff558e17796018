"""Fast exact stand-ins for `RecallModel` while the memory is constructed.

`PositionScores` is partial fine-tuning: theta and omega, the only trained entries of
W_KQ in the paper's theory. `TokenScores` is the first step of full fine-tuning: its
query is always the same vector z_last, so W_KQ acts only through W_KQ z_last.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from .model import RecallModel
from .task import Episodes
from .theory import (
    answer_loss,
    pattern_counts,
    quadratic_forms,
    relation_loss,
    relation_slope,
    right_pattern,
)


class PositionScores(nn.Module):
    """Attention by position alone: theta for the first step, omega for the second.

    With `perturbations` it holds as many copies, each with the displacement that
    Algorithm 1 makes once, between its two stages.
    """

    def __init__(
        self,
        n_examples: int,
        *,
        perturbations: Float[Tensor, "copy coordinate"] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        length = 2 * n_examples + 2
        copies = () if perturbations is None else (len(perturbations),)
        self.theta = nn.Parameter(torch.zeros(*copies, length, dtype=dtype))
        self.omega = nn.Parameter(torch.zeros(*copies, length + 1, dtype=dtype))
        if perturbations is not None:
            self.perturbation = nn.Parameter(perturbations.to(dtype))
        self.forms: Tensor
        forms = quadratic_forms(n_examples).to(dtype)
        self.register_buffer("forms", forms, persistent=False)

    def attention(self, _tokens: Int[Tensor, "batch key"]) -> Float[Tensor, "1 key"]:
        """One attention for all prompts."""
        return self.theta.softmax(-1)[None]


def ball(
    radius: float, dimension: int, *, generator: torch.Generator
) -> Float[Tensor, " dimension"]:
    """A point drawn uniformly from a ball."""
    noise = torch.randn(dimension, generator=generator, dtype=torch.float64)
    share = torch.rand((), generator=generator, dtype=torch.float64) ** (1 / dimension)
    return noise * (radius * share / noise.norm())


def displace(parameters: dict[str, Tensor]) -> None:
    """Move theta and omega by their perturbation, in place."""
    moved = parameters["perturbation"]
    length = parameters["theta"].shape[-1]
    parameters["theta"] += moved[..., :length]
    parameters["omega"] += moved[..., length:]


def within_symmetry(
    moved: Float[Tensor, " coordinate"],
) -> Float[Tensor, " coordinate"]:
    """A displacement of theta and omega of the same length that keeps pairs equal."""
    theta, omega = moved[:6], moved[6:]
    even = torch.cat([(theta + mirrored(theta)) / 2, omega])
    return even * (moved.norm() / even.norm())


def mirrored(scores: Float[Tensor, "*copy key"]) -> Float[Tensor, "*copy key"]:
    """The scores, or their gradients, with the two examples exchanged."""
    return scores[..., [2, 3, 0, 1, 4, 5]]


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
        spread: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        length = 2 * n_examples + 2
        scale = embedding.new_tensor(2**0.5)
        if optimiser == "adam":
            scale = 1 + embedding[-1].abs().sum()
        # W_KQ starts with this spread; its product with z_last has twice the variance.
        start = torch.randn(length + embedding.shape[1], generator=generator)
        self.vector = nn.Parameter(spread * 2**0.5 * start / scale)
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


def relation_quantities(episodes: Episodes) -> dict[str, Tensor]:
    """The data of the losses below: tokens and pattern counts."""
    return {
        "tokens": episodes.relation_step().tokens,
        "counts": pattern_counts(episodes),
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


def both_steps_loss(
    model: PositionScores,
    data: dict[str, Tensor],
    *,
    n_subjects: int,
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of the relation plus that of the answer given the relation."""
    second = answer_loss(
        model.omega.softmax(-1), n_subjects=n_subjects, temperature=temperature
    )
    return mean_relation_loss(model, data, temperature=temperature) + second


@dataclass(frozen=True)
class Pace:
    """How each copy descends.

    Attributes:
        temperature: of its loss.
        rate: of its gradient steps.
        held: whether its two examples get equal gradients; round-off alone would leave
            the saddle after about a hundred steps.
    """

    temperature: Float[Tensor, "copy 1"]
    rate: Float[Tensor, "copy 1"]
    held: Bool[Tensor, "copy 1"]

    def to(self, device: torch.device) -> "Pace":
        """The same on another device."""
        moved = (x.to(device) for x in (self.temperature, self.rate, self.held))
        return Pace(*moved)


@torch.no_grad()
def descended(
    theta: Float[Tensor, "copy key"],
    data: dict[str, Tensor],
    forms: Float[Tensor, "pattern key key2"],
    pace: Pace,
    steps: int,
) -> Float[Tensor, "copy key"]:
    """Some steps of gradient descent on the relation's loss, two examples, one prompt.

    The data are its pattern counts, and `targets` where answers are permuted.
    """
    counts = data["counts"].to(theta.dtype)
    targets = data.get("targets")
    if targets is None:
        index = torch.tensor([right_pattern(2)], device=counts.device)
        targets = F.one_hot(index, counts.shape[-1])
    heat, targets = pace.temperature, targets.to(counts)
    for _ in range(steps):
        slope = relation_slope(theta, counts, targets, forms, temperature=heat)
        slope = torch.where(pace.held, (slope + mirrored(slope)) / 2, slope)
        theta = theta - pace.rate * slope
    return theta


def strided_loss(
    model: PositionScores, data: dict[str, Tensor], *, pace: Pace, stride: int
) -> Float[Tensor, ""]:
    """The copies' loss on the relation; its gradient is how far `stride` steps lead.

    Gradient descent at rate 1 then takes all these steps at once, each copy at its own
    pace.
    """
    pace = pace.to(model.theta.device)
    here = model.theta.detach()
    ahead = descended(here, data, model.forms, pace, stride)
    counts = data["counts"].expand(len(here), -1)
    loss = relation_loss(
        here.softmax(-1), counts, model.forms, temperature=pace.temperature
    )
    return loss.sum() + ((model.theta - here) * (here - ahead)).sum()


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
