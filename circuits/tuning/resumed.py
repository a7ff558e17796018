"""Train the last blocks of a language model: what the others make is computed once."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from trained.errors import BadInput, unknown
from trained.interrupts import Holding

from .facts import CHUNK, FactBatch, logits_of, unembedding_at


class ResumedBatch(NamedTuple):
    """Facts, and the residual stream after the frozen blocks."""

    facts: FactBatch
    residual: Tensor
    """[fact, pos, d_model]; tokens where nothing is frozen."""


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
            "one; train all layers"
        )
    return found[0]


def last_blocks(model: nn.Module, n_blocks: int) -> tuple[str, ...]:
    """What the names of the parameters of a model's last blocks begin with."""
    name, blocks = block_list(model)
    if not 1 <= n_blocks <= len(blocks):
        raise unknown("number of last layers", n_blocks, f"1 to {len(blocks)}")
    return tuple(f"{name}.{i}." for i in range(len(blocks) - n_blocks, len(blocks)))


@torch.no_grad()
def run_frozen(model: nn.Module, facts: FactBatch, n_frozen: int) -> ResumedBatch:
    """Run the frozen blocks, which come first, on every fact."""
    seen: list[Tensor] = []

    def keep(_block: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0].cpu())

    device = next(model.parameters()).device
    chunks = zip(*(torch.split(tensor, CHUNK) for tensor in facts), strict=True)
    with Holding() as held:
        held.add(block_list(model)[1][n_frozen].register_forward_pre_hook, keep)
        for tokens, mask, _ in chunks:
            logits_of(model, tokens.to(device), mask.to(device))
    return ResumedBatch(facts, torch.cat(seen))


def resumed_loss(model: Any, batch: ResumedBatch, n_frozen: int) -> Float[Tensor, ""]:
    """-log p of the answers' tokens, each given all before it; their mean.

    The frozen blocks are not run: their residual is given. Nor is the last position,
    after which nothing is asked.
    """
    facts = batch.facts
    answers = facts.answers.nonzero(as_tuple=True)
    fact, place = (index.to(facts.tokens.device) for index in answers)
    frozen = list(block_list(model)[1])[:n_frozen]
    with (
        _answering(frozen, batch.residual[:, :-1]),
        unembedding_at(model, fact, place - 1),
    ):
        logits = logits_of(model, facts.tokens[:, :-1], facts.mask[:, :-1])
    return functional.cross_entropy(logits.float(), facts.tokens[fact, place])


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
