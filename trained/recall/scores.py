"""Partial fine-tuning: theta and omega, the only trained entries of W_KQ in the theory.

An exact stand-in for `RecallModel` while the memory is constructed. Many small problems
are copies within one model, so that the many small steps are taken once for all.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from .model import RecallModel
from .slopes import (
    answer_slope,
    relation_odds,
    relation_slope,
)
from .theory import (
    answer_loss,
    quadratic_forms,
    relation_loss,
    right_pattern,
)

NO_DOUBT = -1e6
"""Log odds of a wrong answer before any were met."""


class PositionScores(nn.Module):
    """Attention by position alone: theta for the first step, omega for the second.

    It holds several copies, each with the displacement that Algorithm 1 makes once.
    `doubt` is the largest log odds of a wrong answer that a copy has met.
    """

    def __init__(
        self, n_examples: int, perturbations: Float[Tensor, "copy coordinate"]
    ) -> None:
        super().__init__()
        copies, length = len(perturbations), 2 * n_examples + 2
        zero = perturbations.new_zeros(copies, length + 1)
        self.theta = nn.Parameter(zero[:, 1:].clone())
        self.omega = nn.Parameter(zero)
        self.perturbation = nn.Parameter(perturbations)
        self.doubt = nn.Parameter(torch.full_like(zero[:, 0], NO_DOUBT))
        self.forms: Tensor
        forms = quadratic_forms(n_examples).to(perturbations.dtype)
        self.register_buffer("forms", forms, persistent=False)


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


def copies_loss(
    model: PositionScores,
    data: dict[str, Tensor],
    *,
    n_subjects: Int[Tensor, " copy"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Each copy's loss on its own prompts, both steps, summed over the copies.

    An optimiser that acts entry by entry then trains every copy as if alone.
    """
    # A copy's attention, and so its logits, are the same on all of its prompts.
    first = relation_loss(
        model.theta.softmax(-1)[:, None],
        data["counts"],
        model.forms,
        temperature=temperature,
        target=data.get("pattern"),
    )
    second = answer_loss(
        model.omega.softmax(-1)[:, None],
        n_subjects=n_subjects[:, None].to(first.device),
        temperature=temperature,
        target=data.get("answer"),
    )
    return (first + second).mean(-1).sum()


@dataclass(frozen=True)
class Pace:
    """How each copy descends.

    Attributes:
        temperature: of its loss.
        rate: of its gradient steps.
        n_subjects: in its table.
        held: whether its two examples get equal gradients; round-off alone would leave
            the saddle after about a hundred steps.
    """

    temperature: Float[Tensor, "copy 1"]
    rate: Float[Tensor, "copy 1"]
    n_subjects: Int[Tensor, " copy"]
    held: Bool[Tensor, "copy 1"] | None = None

    def to(self, device: torch.device) -> "Pace":
        """The same on another device."""
        return Pace(
            self.temperature.to(device),
            self.rate.to(device),
            self.n_subjects.to(device),
            None if self.held is None else self.held.to(device),
        )


@torch.no_grad()
def descended(
    theta: Float[Tensor, "copy key"],
    data: dict[str, Tensor],
    pace: Pace,
    steps: int,
) -> Float[Tensor, "copy key"]:
    """Some steps of gradient descent on the relation's loss, two examples.

    The data are pattern counts, and `targets` where answers are permuted.
    """
    counts, targets = data["counts"], data.get("targets")
    if targets is None:
        index = torch.tensor([right_pattern(2)], device=counts.device)
        targets = F.one_hot(index, counts.shape[-1]).to(counts)
    heat = pace.temperature
    for _ in range(steps):
        slope = relation_slope(theta, counts, targets, temperature=heat)
        if pace.held is not None:
            slope = torch.where(pace.held, (slope + mirrored(slope)) / 2, slope)
        theta = theta - pace.rate * slope
    return theta


@torch.no_grad()
def settled(
    omega: Float[Tensor, "copy key"],
    doubt: Float[Tensor, " copy"],
    pace: Pace,
    steps: int,
) -> tuple[Float[Tensor, "copy key"], Float[Tensor, " copy"]]:
    """Some steps of gradient descent on the answer's loss.

    Returns:
        The scores, and the largest log odds of a wrong answer on the way.
    """
    for _ in range(steps):
        slope, odds = answer_slope(
            omega, n_subjects=pace.n_subjects, temperature=pace.temperature
        )
        doubt = torch.maximum(doubt, odds)
        ahead = omega - pace.rate * slope
        # A fixed point of the map, to the last bit: it will never leave it.
        if torch.equal(ahead, omega):
            break
        omega = ahead
    return omega, doubt


def relation_strides(
    model: PositionScores, data: dict[str, Tensor], *, pace: Pace, stride: int
) -> Float[Tensor, ""]:
    """The copies' loss on the relation; its gradient is how far `stride` steps lead.

    Gradient descent at rate 1 then takes all these steps at once, each copy at its own
    pace.
    """
    pace = pace.to(model.theta.device)
    here = model.theta.detach()
    ahead = descended(here, data, pace, stride)
    odds = relation_odds(here.softmax(-1), temperature=pace.temperature)
    loss = (odds[:, None] @ data["counts"].mT).log().mean((1, 2)).sum()
    return loss + _towards(model.theta, ahead)


def both_strides(
    model: PositionScores, data: dict[str, Tensor], *, pace: Pace, stride: int
) -> Float[Tensor, ""]:
    """The same for both steps' scores; `doubt` keeps the worst log odds met."""
    here = pace.to(model.theta.device)
    omega, doubt = settled(model.omega.detach(), model.doubt.detach(), here, stride)
    first = relation_strides(model, data, pace=pace, stride=stride)
    return first + _towards(model.omega, omega) + _towards(model.doubt, doubt)


def _towards(parameter: Tensor, ahead: Tensor) -> Float[Tensor, ""]:
    """Zero, with the gradient that takes a parameter there in a step of rate 1."""
    here = parameter.detach()
    return ((parameter - here) * (here - ahead)).sum()


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
