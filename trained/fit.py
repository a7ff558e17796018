"""A small decoder trained on a task of your own, in memory, in one call."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from .decoder import Decoder, DecoderConfig
from .errors import BadInput
from .seeding import generator
from .task import Batch
from .threads import threads

Draw = Callable[[torch.Generator], Batch]


@threads(1)
def fit(
    draw: Draw,
    *,
    d_vocab: int,
    steps: int = 500,
    lr: float = 3e-3,
    seed: int = 0,
    **sizes: Any,
) -> Decoder:
    """Train a GPT-2-like decoder by Adam to give each prompt's target after its end.

    Nothing is stored: for seeds, nulls, resuming and verdicts make it a study
    (docs/extend.md).

    Args:
        draw: a generator of random numbers -> a fresh batch of prompts and targets.
        d_vocab: how many tokens there are.
        steps: updates, each on a batch of its own.
        lr: Adam's rate.
        seed: of the weights and the data.
        sizes: fields of `DecoderConfig`; by default 2 layers of 2 heads, width 32.

    Returns:
        The trained model; every function of `reasonscope` takes it.
    """
    if steps < 1:
        raise BadInput(f"steps={steps}: give at least 1")
    data = generator(seed, "data")
    batch = draw(data)
    chosen = {"n_layers": 2, "n_heads": 2, "d_model": 32, **sizes}
    config = DecoderConfig(d_vocab=d_vocab, n_ctx=batch.tokens.shape[-1], **chosen)
    model = Decoder(config, generator=generator(seed, "model"))
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        rows = torch.arange(len(batch))
        loss = cross_entropy(model(batch.tokens)[rows, batch.last], batch.targets)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        batch = draw(data)
    return model.requires_grad_(False)
