"""Logits at the answer, for whole passes and for passes that start inside the model.

An intervention in block l leaves every block before it as it was. Where a model lets
us, a pass therefore starts from the stored residual before block l, and only the
answer's position is unembedded.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from circuits.backends import backend_of
from circuits.hooks import Model, forward, module_of, record
from circuits.sites import Site
from trained.decoder import Decoder

from .part import Examples, Places, column

Residual = Float[Tensor, "batch pos d_model"]
AnswerLogits = Float[Tensor, "batch d_vocab"]


def sites_of(model: Model) -> list[Site]:
    """Every site that the model has."""
    module = module_of(model)
    return backend_of(module).sites(module)


@torch.no_grad()
def activations(
    model: Model, examples: Examples, sites: Sequence[Site]
) -> dict[Site, Tensor]:
    """The activations at some sites in one pass."""
    with record(model, sites) as seen:
        forward(model, examples)
    return seen


@torch.no_grad()
def answer_logits(
    model: Model, examples: Examples, read_at: Places = "last"
) -> AnswerLogits:
    """The logits at one position of every prompt, in one whole pass."""
    logits = activations(model, examples, [Site("logits")])[Site("logits")]
    return _at(logits, examples, read_at)


def can_resume(model: Model) -> bool:
    """Whether passes of this model can start inside it."""
    return isinstance(module_of(model), Decoder) or _is_hf(module_of(model))


@torch.no_grad()
def resumed_logits(
    model: Model,
    examples: Examples,
    residual: Residual,
    layer: int,
    read_at: Places = "last",
) -> AnswerLogits:
    """The logits at one position of every prompt, from the residual before a block.

    Only for models that `can_resume`; hooks before the block do not fire.
    """
    module = module_of(model)
    if isinstance(module, Decoder):
        out = module.through(residual, layer)
        return module.readout(_at(out, examples, read_at)[:, None])[:, 0]

    places = column(examples, read_at)
    with (
        _answering(list(_hf_part(module, "blocks"))[:layer], residual),
        _unembedding_at(_hf_part(module, "unembedding"), places),
    ):
        return answer_logits(model, examples, read_at)


def _at(
    values: Float[Tensor, "batch pos width"], examples: Examples, read_at: Places
) -> Float[Tensor, "batch width"]:
    # Models of one output position answer there.
    if values.shape[1] == 1:
        return values[:, 0]
    rows = torch.arange(len(values), device=values.device)
    return values[rows, column(examples, read_at)]


def _is_hf(module: Any) -> bool:
    return getattr(backend_of(module), "__name__", "") == "circuits.backends.hf"


def _hf_part(module: Any, part: str) -> Any:
    from circuits.backends.families import family_of

    return module.get_submodule(getattr(family_of(module), part))


@contextmanager
def _answering(blocks: Sequence[nn.Module], residual: Residual) -> Iterator[None]:
    """Let blocks answer with a given residual instead of computing."""

    def answer(*_args: Any, **_options: Any) -> Tensor:
        return residual

    with ExitStack() as stack:
        for block in blocks:
            stack.callback(_restore, block, vars(block).get("forward"))
            block.forward = answer
        yield


def _restore(block: nn.Module, own: Any) -> None:
    if own is None:
        del block.forward
    else:
        block.forward = own


@contextmanager
def _unembedding_at(
    unembedding: nn.Module, places: Int[Tensor, " batch"]
) -> Iterator[None]:
    """Unembed one position of every prompt, and show its logits at all of them."""
    rows = torch.arange(len(places), device=places.device)
    length = 1

    def narrow(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        nonlocal length
        length = inputs[0].shape[1]
        return (inputs[0][rows, places][:, None],)

    def widen(_module: nn.Module, _inputs: Any, logits: Tensor) -> Tensor:
        return logits.expand(-1, length, -1)

    before = unembedding.register_forward_pre_hook(narrow)
    after = unembedding.register_forward_hook(widen)
    try:
        yield
    finally:
        before.remove()
        after.remove()
