"""Where a token looks, head by head, and the heads that look hardest."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.hooks import Model, Signal, measure
from circuits.interventions.part import Places, column, columns
from circuits.models.prompts import named
from probes.attention import attention_entropy
from probes.measurement import Label, Measurement
from trained.errors import BadInput, unknown
from trained.task import Batch

from .one_pass import Pass, queries_of
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
    """The last token's attention, and the patterns of the heads that look hardest."""

    last_row: Measurement
    """Axes ("layer", "head", "key")."""
    concentration: Measurement
    """The largest weight on one token between the first and the last; axes
    ("layer", "head")."""
    patterns: Measurement
    """Among the shown positions; axes ("head", "query", "key"), heads named
    `layer.head`, those that look hardest first."""
    mass: Measurement | None = None
    """Of the last token and of every role on the roles before it; axes ("keys", "look",
    "layer", "head"): "role", and "elsewhere", the mean over as many tokens anywhere
    between the first and the query."""


def read_attention(passed: Pass) -> AttentionReading:
    """The attention in one prompt.

    Many heads rest on the first token whatever the prompt says (the attention sink)
    and others stay where they are. So heads are ranked by their mass on a role, over
    what as many other tokens get; without roles, by their weight on a token between.
    """
    assert passed.rows is not None
    model, prompt = passed.model, passed.prompt
    layers = {"layer": passed.layers}
    rows = passed.rows[:, :, 0]
    last_row = Measurement(
        rows,
        ("layer", "head", "key"),
        {**layers, "key": places(model, prompt)},
        name="attention of last",
    )
    between = Measurement(
        rows[..., 1:-1].amax(-1),
        ("layer", "head"),
        layers,
        name="the last token's largest attention",
        unit="on a token between first and last",
    )
    mass = _mass(passed)
    ranked = between.values
    if mass is not None:
        last = [place for place, look in enumerate(mass.labels["look"]) if _last(look)]
        ranked = (mass.values[0] - mass.values[1])[last].amax(0)
    return AttentionReading(last_row, between, _patterns(passed, ranked), mass)


def _last(look: Label) -> bool:
    return str(look).startswith("last ")


def _mass(passed: Pass) -> Measurement | None:
    """Mass on the roles, and the mean mass on as many tokens elsewhere.

    Of a row A of query q and k tokens of a role that q sees, k / q of what it gives to
    tokens 1 to q: the mean over all choices of k of these tokens. The first token keeps
    its place, as in the null of `scan`.
    """
    assert passed.rows is not None
    item, found, null, names = passed.item, [], [], []
    for query, (asking, place) in enumerate(queries_of(item).items()):
        row = passed.rows[:, :, query]
        for role, own in item.roles.items():
            seen = [key for key in own if key <= place]
            if not seen or not place or role == asking:
                continue
            moved = sum(key > 0 for key in seen)
            kept = row[..., 0] * (moved < len(seen))
            names.append(f"{asking} on {role}")
            found.append(row[..., seen].sum(-1))
            null.append(kept + row[..., 1 : place + 1].sum(-1) * moved / place)
    if not names:
        return None
    return Measurement(
        torch.stack([torch.stack(found), torch.stack(null)]),
        ("keys", "look", "layer", "head"),
        {
            "keys": ("role", "elsewhere"),
            "look": tuple(names),
            "layer": passed.layers,
        },
        name="attention mass",
    )


def _patterns(passed: Pass, ranked: Float[Tensor, "layer head"]) -> Measurement:
    assert passed.blocks is not None
    order = ranked.flatten().argsort(descending=True, stable=True)[:SHOWN_HEADS]
    heads = [divmod(place, ranked.shape[1]) for place in order.tolist()]
    tokens = places(passed.model, passed.prompt)
    shown = tuple(tokens[place] for place in passed.shown)
    return Measurement(
        torch.stack([passed.blocks[layer, head] for layer, head in heads]),
        ("head", "query", "key"),
        {
            "head": tuple(f"{passed.layers[layer]}.{head}" for layer, head in heads),
            "query": shown,
            "key": shown,
        },
        name="attention",
    )
