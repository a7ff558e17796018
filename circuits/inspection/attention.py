"""Where the last token looks, head by head, and the heads that look hardest."""

from dataclasses import dataclass

import torch
from torch import Tensor

from circuits.hooks import Signal, measure, record
from circuits.models.prompts import Prompts
from circuits.sites import Site
from probes.measurement import Measurement

from .subject import Subject

SHOWN_HEADS = 6
"""Heads whose whole pattern is drawn."""


@dataclass(frozen=True)
class AttentionReading:
    """The last token's attention, and the patterns of the most concentrated heads."""

    last_row: Measurement
    """Axes ("layer", "head", "key")."""
    concentration: Measurement
    """The largest weight on one token between the first and the last; axes
    ("layer", "head")."""
    patterns: Measurement
    """Axes ("head", "query", "key"), heads named `layer.head`, largest first."""


def read_attention(subject: Subject) -> AttentionReading:
    """Attention of the last token by layer and head.

    Many heads rest on the first token whatever the prompt says (the attention sink)
    and others stay where they are, so heads are ranked by their weight on the tokens
    between.
    """
    found = measure(subject.model, [subject.prompts], {"row": _LAST_ROW})["row"]
    last_row = found.select(statistic="mean")
    rows = last_row.values
    n_layers, n_heads = rows.shape[:2]
    between = rows[..., 1:-1].amax(-1)
    labels = {"layer": tuple(range(n_layers)), "head": tuple(range(n_heads))}
    return AttentionReading(
        last_row=Measurement(
            rows,
            ("layer", "head", "key"),
            {**labels, "key": subject.places},
            name="attention of the last token",
        ),
        concentration=Measurement(
            between,
            ("layer", "head"),
            labels,
            name="the last token's largest attention",
            unit="on a token between first and last",
        ),
        patterns=_patterns(subject, _strongest(between)),
    )


def _at_last(pattern: Tensor, prompts: Prompts) -> Tensor:
    rows = torch.arange(len(pattern), device=pattern.device)
    return pattern[rows, :, prompts.last]


_LAST_ROW = Signal("pattern", _at_last, ("head", "key"))


def _strongest(weights: Tensor) -> list[tuple[int, int]]:
    order = weights.flatten().argsort(descending=True, stable=True)[:SHOWN_HEADS]
    n_heads = weights.shape[1]
    return [divmod(place, n_heads) for place in order.tolist()]


@torch.no_grad()
def _patterns(subject: Subject, heads: list[tuple[int, int]]) -> Measurement:
    sites = [Site("pattern", layer) for layer in sorted({layer for layer, _ in heads})]
    with record(subject.model, sites) as seen:
        subject.model(subject.prompts.tokens, subject.prompts.mask)
    return Measurement(
        torch.stack([seen[Site("pattern", layer)][0, head] for layer, head in heads]),
        ("head", "query", "key"),
        {
            "head": tuple(f"{layer}.{head}" for layer, head in heads),
            "query": subject.places,
            "key": subject.places,
        },
        name="attention",
    )
