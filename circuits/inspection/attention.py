"""Where a token looks, head by head, and the heads that look hardest."""

from dataclasses import dataclass

import torch
from torch import Tensor

from circuits.hooks import Model, Signal, measure
from circuits.interventions.part import Places, column, columns
from circuits.interventions.passes import activations
from circuits.models.prompts import named
from circuits.sites import Site
from probes.attention import attention_entropy
from probes.measurement import Measurement
from trained.errors import BadInput, unknown
from trained.task import Batch

from .subject import PROMPTS_AT_ONCE, places

SHOWN_HEADS = 6
"""Heads whose whole pattern is drawn."""


BY = ("weight", "entropy")


def attention(
    model: Model,
    prompts: Batch,
    to: Places = None,
    *,
    query: str | int = "last",
    by: str = "weight",
) -> Measurement:
    """How much a token attends to a set of keys, by layer and head, mean over prompts.

    Args:
        model: the model.
        prompts: the prompts.
        to: the keys whose weights are added up: a role, a phrase that is in every
            prompt, or columns. None: every key on its own.
        query: the token that looks: a role, a phrase of one token, or a column.
        by: "weight"; or "entropy", in nats, of all keys together: log n if the token
            looks at n of them alike.

    Returns:
        A Measurement with axes ("layer", "head"), and "key" if every key is asked for.
    """
    if by not in BY:
        raise unknown("measure of attention", by, BY)
    if by == "entropy" and to is not None:
        raise BadInput("the entropy is that of all keys together: leave out `to`")
    prompts = named(model, prompts, to, query)
    every_key = to is None and by == "weight"
    if every_key and not bool(prompts.real.all()):
        raise BadInput(
            "prompts of several lengths have no common keys: name them by `to`"
        )

    def read(rows: Tensor, _batch: Batch) -> Tensor:
        # One query, and of a set of keys its mass.
        row = rows[:, :, 0]
        if by == "entropy":
            return attention_entropy(row)
        return row if to is None else row[..., 0]

    axes = ("head", "key") if every_key else ("head",)
    signal = Signal(
        "pattern",
        read,
        axes,
        at=lambda batch: column(batch, query)[:, None],
        keys=None if to is None else (lambda batch: columns(batch, to),),
    )
    signals = {"attention": signal}
    found = measure(model, prompts.chunks(PROMPTS_AT_ONCE), signals)["attention"]
    keys = {"key": places(model, prompts)} if every_key else {}
    return Measurement(
        found.select(statistic="mean").values,
        ("layer", *axes),
        {"layer": found.labels["layer"], **keys},
        name=f"attention of {query}" + ("" if to is None else f" on {to}"),
        unit="" if by == "weight" else "entropy in nats",
        provenance=found.provenance,
    )


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


def read_attention(model: Model, prompt: Batch) -> AttentionReading:
    """The attention of the last token of one prompt.

    Many heads rest on the first token whatever the prompt says (the attention sink)
    and others stay where they are, so heads are ranked by their weight on the tokens
    between.
    """
    last_row = attention(model, prompt)
    between = Measurement(
        last_row.values[..., 1:-1].amax(-1),
        ("layer", "head"),
        {"layer": last_row.labels["layer"]},
        name="the last token's largest attention",
        unit="on a token between first and last",
    )
    order = between.values.flatten().argsort(descending=True, stable=True)
    n_heads = between.values.shape[1]
    strongest = [divmod(place, n_heads) for place in order[:SHOWN_HEADS].tolist()]
    return AttentionReading(last_row, between, _patterns(model, prompt, strongest))


def _patterns(model: Model, prompt: Batch, heads: list[tuple[int, int]]) -> Measurement:
    sites = [Site("pattern", layer) for layer in sorted({layer for layer, _ in heads})]
    seen = activations(model, prompt, sites)
    tokens = places(model, prompt)
    return Measurement(
        torch.stack([seen[Site("pattern", layer)][0, head] for layer, head in heads]),
        ("head", "query", "key"),
        {
            "head": tuple(f"{layer}.{head}" for layer, head in heads),
            "query": tokens,
            "key": tokens,
        },
        name="attention",
    )
