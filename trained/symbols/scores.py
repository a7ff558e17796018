"""How the answers of the study's networks are scored; seeds can be stacked."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from trained.arm import Quantity
from trained.decoder import answer
from trained.task import Batch

Labels = tuple[float, ...]
"""The distinct numbers that a task asks for."""


def answers(model: nn.Module, strings: Batch) -> Float[Tensor, "batch out"]:
    """What the model says at CLS: a number, or a logit for every token but CLS."""
    said = answer(model, strings.tokens)
    return said if said.shape[-1] == 1 else said[:, :-1]


def loss(model: nn.Module, strings: Batch) -> Float[Tensor, ""]:
    """Mean squared error of numbers, mean cross-entropy of tokens."""
    said = answers(model, strings)
    if strings.targets.is_floating_point():
        return (said[:, 0] - strings.targets).square().mean()
    return F.cross_entropy(said, strings.targets)


def wrong(
    said: Float[Tensor, "batch out"], targets: Tensor, labels: Labels
) -> Bool[Tensor, " batch"]:
    """Which answers are not nearest to their own label, or name another token.

    Args:
        said: numbers, or a logit for every token.
        targets: the label of each, or the token to name.
        labels: the distinct labels of the task; a number as near to another label as
            to its own is wrong.

    >>> labels = (-1.0, 0.0, 1.0)
    >>> wrong(torch.tensor([[0.9], [0.4], [0.5]]), torch.tensor([1.0, 0, 1]), labels)
    tensor([False, False,  True])
    """
    if not targets.is_floating_point():
        return said.argmax(-1) != targets
    near = (said - torch.tensor(labels, device=said.device)).abs()
    own = (said[:, 0] - targets).abs()
    others = (torch.tensor(labels, device=said.device) - targets[:, None]).abs() > 1e-6
    rival = near.masked_fill(~others, torch.inf).amin(1)
    return ~(own < rival)


def error(
    model: nn.Module, strings: Batch, *, labels: Labels = (-1.0, 1.0)
) -> Float[Tensor, ""]:
    """Share of wrong answers; `labels` are the distinct numbers of the task."""
    return wrong(answers(model, strings), strings.targets, labels).float().mean()


def alphabet_error(
    model: nn.Module, strings: Batch, *, among: range
) -> Float[Tensor, ""]:
    """Share of wrong tokens when only those of one alphabet may be named."""
    said = answers(model, strings)[:, among.start : among.stop]
    return (said.argmax(-1) + among.start != strings.targets).float().mean()


def area(
    said: Float[Tensor, " batch"], high: Bool[Tensor, " batch"], weight: Tensor
) -> Float[Tensor, " *row"]:
    """Area under the ROC curve between two labels, for rows of weights of the strings.

    The share of pairs of a high and a low string that the answers order rightly; half
    where they are equal.

    >>> said, high = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([True, True, False])
    >>> area(said, high, torch.ones(3))
    tensor(0.5000)
    """
    above = said[:, None] - said[None, :]
    right = (above > 0).to(said.dtype) + 0.5 * (above == 0).to(said.dtype)
    first, second = weight * high, weight * ~high
    pairs = torch.einsum("...i,ij,...j->...", first, right, second)
    return pairs / (first.sum(-1) * second.sum(-1)).clamp_min(1e-9)


def area_of(model: nn.Module, strings: Batch) -> Float[Tensor, ""]:
    """The area between the strings with labels above and below zero."""
    said = answers(model, strings)[:, 0]
    return area(said, strings.targets > 0, torch.ones_like(said))


def area_score(
    model: nn.Module, strings: Batch, *, symbols: range
) -> Float[Tensor, ""]:
    """The area's distance from one half, in standard errors.

    The jackknife over symbols: strings that share one are not independent.
    """
    said = answers(model, strings)[:, 0]
    high = strings.targets > 0
    ids = torch.arange(symbols.start, symbols.stop, device=said.device)
    holds = (strings.tokens[None] == ids[:, None, None]).any(-1)
    parts = area(said, high, (~holds).to(said.dtype))
    size = len(symbols)
    spread = (parts - parts.mean()).square().sum() * (size - 1) / size
    whole = area(said, high, torch.ones_like(said))
    return (whole - 0.5) / spread.sqrt().clamp_min(1e-9)


def on_split(quantity: Quantity, split: str) -> Quantity:
    """A quantity of one of several splits."""
    return lambda model, data: quantity(model, data[split])
