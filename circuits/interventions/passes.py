"""Logits at the answer, for whole passes and for passes that start inside the model.

An intervention in block l leaves every block before it as it was. Where a model lets
us, a pass therefore starts from the stored residual before block l, and only the
answer's position is unembedded.
"""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.backends import backend_of
from circuits.backends.anatomy import Resumption
from circuits.hooks import Model, forward, module_of, reading, record
from circuits.sites import Site
from trained.errors import BadInput
from trained.task import Batch

from .part import Places, column

Residual = Float[Tensor, "batch pos d_model"]
AnswerLogits = Float[Tensor, "batch d_vocab"]


@torch.no_grad()
def activations(
    model: Model,
    examples: Batch,
    sites: Sequence[Site],
    columns: Int[Tensor, "batch place"] | None = None,
) -> dict[Site, Tensor]:
    """The activations at some sites in one pass; with columns, there alone.

    Logits that nobody asks for are not computed.
    """
    nowhere = examples.tokens[:, :0]
    read = None if Site("logits") in sites else nowhere
    with reading(model, read), record(model, sites, columns) as seen:
        forward(model, examples)
    return seen


@torch.no_grad()
def answer_logits(
    model: Model, examples: Batch, read_at: Places = "last"
) -> AnswerLogits:
    """The logits at one position of every prompt, in one whole pass."""
    return logits_and_activations(model, examples, (), read_at)[0]


@torch.no_grad()
def logits_and_activations(
    model: Model, examples: Batch, sites: Collection[Site], read_at: Places = "last"
) -> tuple[AnswerLogits, dict[Site, Tensor]]:
    """What `answer_logits` gives, and activations at some sites of the same pass."""
    columns, said = column(examples, read_at)[:, None], Site("logits")
    read = None if said in sites else columns
    recorded = sorted({*sites, said})
    with reading(model, read) as unembedded, record(model, recorded) as seen:
        forward(model, examples)
    logits = seen[said]
    # Models of one output position answer there.
    single = logits.shape[1] == 1
    answers = (logits if single else unembedded.at(logits, columns))[:, 0]
    return answers, {site: seen[site] for site in sites}


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
