"""Clauses hidden from a step, and attention sharpened."""

import random
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from jaxtyping import Float
from torch import Tensor

from circuits.hooks import Edit, intervene
from circuits.interventions.ablation import Edges, knock_out
from circuits.interventions.edit import merged
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from circuits.sites import Site

from .clauses import Change, Heads
from .data import n_steps

SHARPENING = 1.5
"""Factor of the scores."""


def hide_predicates(hidden: Sequence[int], heads: Heads | None = None) -> Change:
    """Hide one predicate from each answer line, up to and at its "=".

    Args:
        hidden: for each step from the first on, the number of the hidden predicate.
        heads: in which heads; None for all.
    """

    def change(model: LanguageModel, prompts: Prompts) -> AbstractContextManager[None]:
        places = _by_layer(heads) if heads else dict.fromkeys(range(model.n_layers))
        edges = [
            Edges(layer, f"asking{step}", f"predicate{number}", chosen)
            for layer, chosen in places.items()
            for step, number in enumerate(hidden, 1)
        ]
        return knock_out(model, prompts, edges)

    return change


def due(length: int) -> list[int]:
    """For each step the predicate that it needs."""
    return list(range(1, length + 1))


def not_due(length: int, source: random.Random) -> list[int]:
    """For each step another predicate, drawn at random."""
    return [
        source.choice([i for i in range(1, length + 1) if i != step])
        for step in range(1, length + 1)
    ]


def sharpen(heads: Heads) -> Change:
    """Multiply the scores of some heads by a factor, at every step."""

    def change(model: LanguageModel, prompts: Prompts) -> AbstractContextManager[None]:
        queries = [f"asking{step}" for step in range(1, n_steps(prompts) + 1)]
        edits = [
            (Site("pattern", layer), _sharper(prompts, queries, chosen))
            for layer, chosen in _by_layer(heads).items()
        ]
        return intervene(model, merged(edits))

    return change


def sharpened(
    rows: Float[Tensor, "*batch key"], factor: float
) -> Float[Tensor, "*batch key"]:
    """Attention rows as they would be with scores times a factor.

    softmax(c s) is softmax(s)^c, renormalised.

    >>> import torch
    >>> sharpened(torch.tensor([0.2, 0.4, 0.4]), 2.0).tolist()
    [0.1111111044883728, 0.4444444477558136, 0.4444444477558136]
    """
    powers = rows.pow(factor)
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)


def _sharper(prompts: Prompts, queries: Iterable[str], heads: tuple[int, ...]) -> Edit:
    columns = [prompts.role(query) for query in queries]

    def edit(pattern: Tensor) -> Tensor:
        edited = pattern.clone()
        for places in columns:
            for row, own in enumerate(places.tolist()):
                for head in heads:
                    edited[row, head, own] = sharpened(
                        pattern[row, head, own], SHARPENING
                    )
        return edited

    return edit


def _by_layer(heads: Heads) -> dict[int, tuple[int, ...]]:
    layers = sorted({layer for layer, _ in heads})
    return {n: tuple(head for layer, head in heads if layer == n) for n in layers}
