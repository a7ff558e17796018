"""Logits at the answer, for whole passes and for passes that start inside the model.

An intervention in block l leaves every block before it as it was. Where a model lets
us, a pass therefore starts from the stored residual before block l, and only the
answer's position is unembedded.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.backends import backend_of
from circuits.backends.anatomy import Resumption
from circuits.hooks import Model, forward, module_of, record
from circuits.sites import Site
from trained.errors import BadInput
from trained.task import Batch

from .part import Places, column

Residual = Float[Tensor, "batch pos d_model"]
AnswerLogits = Float[Tensor, "batch d_vocab"]


@torch.no_grad()
def activations(
    model: Model, examples: Batch, sites: Sequence[Site]
) -> dict[Site, Tensor]:
    """The activations at some sites in one pass."""
    with record(model, sites) as seen:
        forward(model, examples)
    return seen


@torch.no_grad()
def answer_logits(
    model: Model, examples: Batch, read_at: Places = "last"
) -> AnswerLogits:
    """The logits at one position of every prompt, in one whole pass."""
    logits = activations(model, examples, [Site("logits")])[Site("logits")]
    return _at(logits, examples, read_at)


def can_resume(model: Model) -> bool:
    """Whether passes of this model can start inside it."""
    return _resumption(model) is not None


@torch.no_grad()
def resumed_logits(
    model: Model,
    examples: Batch,
    residual: Residual,
    layer: int,
    read_at: Places = "last",
) -> AnswerLogits:
    """The logits at one position of every prompt, from the residual before a block.

    Hooks before the block do not fire. `BadInput` for a model that cannot resume.
    """
    resumption = _resumption(model)
    if resumption is None:
        raise BadInput(f"passes of {type(model).__name__} cannot start inside it")
    with resumption.starting(residual, layer, column(examples, read_at)):
        return answer_logits(model, examples, read_at)


def _resumption(model: Model) -> Resumption | None:
    module = module_of(model)
    return backend_of(module).resumption(module)


def _at(
    values: Float[Tensor, "batch pos width"], examples: Batch, read_at: Places
) -> Float[Tensor, "batch width"]:
    # Models of one output position answer there.
    if values.shape[1] == 1:
        return values[:, 0]
    rows = torch.arange(len(values), device=values.device)
    return values[rows, column(examples, read_at)]
