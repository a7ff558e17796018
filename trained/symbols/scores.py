"""Losses and metrics of the symbols models, written so that seeds can be stacked."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .sampler import Strings


def answers(model: nn.Module, strings: Strings) -> Float[Tensor, "batch out"]:
    """What the model says at CLS: a number, or a logit for every token but CLS."""
    said = model(strings.tokens)[:, -1]
    return said if said.shape[-1] == 1 else said[:, :-1]


def loss(model: nn.Module, strings: Strings) -> Float[Tensor, ""]:
    """Mean squared error of numbers, mean cross-entropy of tokens."""
    said = answers(model, strings)
    if strings.targets.is_floating_point():
        return (said[:, 0] - strings.targets).square().mean()
    return cross_entropy(said, strings.targets)


def error(model: nn.Module, strings: Strings) -> Float[Tensor, ""]:
    """Share of wrong answers: the wrong sign, or another token than the target."""
    said = answers(model, strings)
    if strings.targets.is_floating_point():
        wrong = said[:, 0].sign() != strings.targets.sign()
    else:
        wrong = said.argmax(-1) != strings.targets
    return wrong.float().mean()


def alphabet_error(
    model: nn.Module, strings: Strings, *, among: range
) -> Float[Tensor, ""]:
    """Share of wrong tokens when only those of one alphabet may be named."""
    said = answers(model, strings)[:, among.start : among.stop]
    return (said.argmax(-1) + among.start != strings.targets).float().mean()


def loss_on(
    model: nn.Module, data: Mapping[str, Strings], *, split: str
) -> Float[Tensor, ""]:
    """The loss on one split."""
    return loss(model, data[split])


def error_on(
    model: nn.Module, data: Mapping[str, Strings], *, split: str
) -> Float[Tensor, ""]:
    """The error on one split."""
    return error(model, data[split])


def alphabet_error_on(
    model: nn.Module, data: Mapping[str, Strings], *, split: str, among: range
) -> Float[Tensor, ""]:
    """The error on one split among one alphabet."""
    return alphabet_error(model, data[split], among=among)
