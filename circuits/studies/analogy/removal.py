"""Taking a direction off some parts of a model, or adding to it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from circuits.interventions.ablation import ablate
from circuits.interventions.edit import Add
from circuits.interventions.part import Part
from circuits.interventions.passes import activations
from circuits.sites import Site
from trained.analogy.task import Conclusions
from trained.seeding import generator
from trained.task import Batch

Taken = Mapping[Part, tuple[Tensor, Tensor]]
"""What a removal takes off: lengths, and the directions they are along."""
ENTITY_VALUE = Part("value", positions="entity")


def removed(
    model: Any, asked: Conclusions, parts: Sequence[Part], *, centred: bool
) -> Taken:
    """What the targets' parts have along their sources', in a pass that loses it.

    Args:
        model: the model.
        asked: whose sources and targets.
        parts: in the order of the pass: a later one sees the loss of the earlier.
        centred: measure from the mean over the sources.
    """
    taken: dict[Part, tuple[Tensor, Tensor]] = {}
    for part in parts:
        source = activations(model, asked.known, [part.site])[part.site]
        with without(model, asked.test, taken):
            target = activations(model, asked.test, [part.site])[part.site]
        common = source.mean(0) if centred else torch.zeros_like(source[0])
        along = normalize(source - common, dim=-1)
        length = ((target - common) * along).sum(-1, keepdim=True)
        taken[part] = length, along
    return taken


@contextmanager
def without(model: Any, prompts: Batch, taken: Taken) -> Iterator[None]:
    """Let the parts lose lengths along directions, in every pass in the block."""
    with ExitStack() as stack:
        for part, (length, along) in taken.items():
            stack.enter_context(ablate(model, prompts, [part], Add(-length * along)))
        yield


def random_directions(like: Tensor, seed: int, site: Site, draw: int) -> Tensor:
    """Unit vectors of a seed and draw."""
    source = generator(seed, "analogy", "random direction", str(site), draw)
    return normalize(torch.randn(like.shape, generator=source), dim=-1).to(like)


def randomised(taken: Taken, seed: int, draw: int) -> Taken:
    """The same lengths along random directions."""
    return {
        part: (length, random_directions(along, seed, part.site, draw))
        for part, (length, along) in taken.items()
    }
