"""Facts for a model whose first blocks are frozen: their output is computed once.

What frozen blocks make of a fact is the same in every epoch. It is stored with the fact
and each pass starts from it; only the answers' places are unembedded. Falsified by: a
loss or a gradient other than that of whole passes.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from .errors import BadInput
from .facts import CHUNK, FactBatch


class ResumedBatch(NamedTuple):
    """Facts, and the residual stream after the frozen blocks."""

    facts: FactBatch
    residual: Tensor
    """[*seed, fact, pos, d_model]"""


def block_list(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """The blocks of a transformers model, and the name that they have in it."""
    config: Any = model.config
    n_layers: int = config.num_hidden_layers
    found = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == n_layers
    ]
    if len(found) != 1:
        raise BadInput(
            f"{type(model).__name__} has {len(found)} lists of {n_layers} blocks, not "
            "one; leave last_layers out"
        )
    return found[0]


@torch.no_grad()
def run_frozen(model: nn.Module, facts: FactBatch, n_frozen: int) -> ResumedBatch:
    """Run the frozen blocks, which come first, on every fact."""
    seen: list[Tensor] = []

    def keep(_block: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0].cpu())

    device = next(model.parameters()).device
    hook = block_list(model)[1][n_frozen].register_forward_pre_hook(keep)
    try:
        for tokens, mask, _ in zip(
            *(torch.split(t, CHUNK) for t in facts), strict=True
        ):
            _logits(model, tokens.to(device), mask.to(device))
    finally:
        hook.remove()
    return ResumedBatch(facts, torch.cat(seen))


def resumed_loss(model: Any, batch: ResumedBatch, n_frozen: int) -> Float[Tensor, ""]:
    """The `answer_loss` of the facts, from the residual after the frozen blocks."""
    facts = batch.facts
    fact, place = facts.answers.nonzero(as_tuple=True)
    frozen = list(block_list(model)[1])[:n_frozen]
    with (
        _answering(frozen, batch.residual),
        _only_at(model.get_output_embeddings(), fact, place - 1),
    ):
        logits = _logits(model, facts.tokens, facts.mask)
    return functional.cross_entropy(logits.float(), facts.tokens[fact, place])


def _logits(model: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    answer = model(input_ids=tokens, attention_mask=mask.long(), use_cache=False)
    logits: Tensor = answer.logits
    return logits


@contextmanager
def _answering(blocks: Sequence[nn.Module], residual: Tensor) -> Iterator[None]:
    """Let blocks answer with a given residual instead of computing."""

    def answer(*_args: Any, **_options: Any) -> Tensor:
        return residual

    with ExitStack() as stack:
        for block in blocks:
            block.forward = answer
            stack.callback(delattr, block, "forward")
        yield


@contextmanager
def _only_at(
    unembedding: nn.Module, fact: Int[Tensor, " place"], place: Int[Tensor, " place"]
) -> Iterator[None]:
    """Unembed some places only: the logits are [place, d_vocab]."""

    def narrow(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][fact, place],)

    hook = unembedding.register_forward_pre_hook(narrow)
    try:
        yield
    finally:
        hook.remove()
