"""What carries the answer: patches into corrupt prompts, and parts of the logit."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from circuits.inspection.encoding import Item, Tokens
from circuits.inspection.observing import at_least_single
from circuits.inspection.packing import pack, packed
from circuits.inspection.subject import residual_layers
from circuits.interventions.attribution import logit_attribution
from circuits.interventions.metric import Reading, logit_difference
from circuits.interventions.part import position_grid
from circuits.interventions.patching import patch_sweep
from circuits.interventions.sweep import known
from circuits.models.language_model import LanguageModel, Side
from probes.measurement import Measurement
from trained.task import Batch

from .nulls import draws, moved
from .tables import Labels, Part, long

NULL = "null: "
"""Before the name of a place: as many tokens elsewhere."""

ROUND_OFF = 1e-5
"""Two metrics closer than this share of their size leave nothing to restore."""


def patching_parts(
    model: LanguageModel,
    items: Sequence[Item],
    labels: Labels,
    *,
    room: int,
    seed: int,
    side: Side = "left",
) -> Iterator[Part]:
    """The answer's share that the clean residual at a place restores, layer by layer.

    The model runs on the corrupt prompt with the residual after a layer, at all tokens
    of a place, taken from the clean prompt. The metric is the logit of the answer's
    first token minus that of the corrupt answer's; recovery is (patched - corrupt) /
    (clean - corrupt). The null patches as many tokens elsewhere.
    """
    alike: dict[tuple[str, ...], list[Item]] = {}
    for item in items:
        if item.paired:
            alike.setdefault(tuple(item.roles), []).append(item)
    layers = residual_layers(model)
    for several in alike.values():
        for some in packed(several, lambda item: len(item.tokens), room):
            yield _patched(model, some, labels, layers, (room, seed), side)


def _patched(
    model: LanguageModel,
    items: Sequence[Item],
    labels: Labels,
    layers: Sequence[int],
    settings: tuple[int, int],
    side: Side,
) -> Part:
    room, seed = settings
    names = [name for name in labels.patched if name in _places(items[0], seed)]
    clean, corrupt = _twins(model, items, seed, side)
    wrong = torch.tensor([item.wrong for item in items], device=model.device)
    grid = position_grid("resid_post", layers, [*names, *(NULL + n for n in names)])
    reading = Reading(logit_difference(wrong), tokens_at_once=room)
    swept = patch_sweep(model, clean, corrupt, grid, reading)
    values = _recovered(swept)
    axes = {
        "prompt": [item.index for item in items],
        "layer": layers,
        "place": [labels.patched.index(name) for name in names],
    }
    return long(axes, values, np.ones((1, 1, 1), bool))


def _places(item: Item, seed: int) -> dict[str, Tokens]:
    """Where an item is patched, and where for the null."""
    own = {**item.roles, "changed": item.changed, "last": (item.last,)}
    random = draws(seed, item.index, 2)
    null = {NULL + name: moved(own[name], item.last, random) for name in own}
    return own | null


def _twins(
    model: LanguageModel, items: Sequence[Item], seed: int, side: Side
) -> tuple[Batch, Batch]:
    """The clean and the corrupt prompts, with all places as roles."""
    places = [_places(item, seed) for item in items]
    targets = [item.answers[0][0] for item in items]
    found = []
    for texts in ([i.tokens for i in items], [i.corrupt or () for i in items]):
        own = pack(model, texts, side=side)
        roles = {name: own.columns([p[name] for p in places]) for name in places[0]}
        answers = torch.tensor(targets, device=model.device)
        found.append(Batch(own.batch.tokens, answers, own.batch.mask, roles))
    return found[0], found[1]


def _recovered(swept: Measurement) -> dict[str, NDArray[Any]]:
    own, null = at_least_single(swept.values).chunk(2, 1)
    corrupt, clean = (known(swept, what).to(own) for what in ("unedited", "clean"))
    gap = clean - corrupt
    size = torch.maximum(clean.abs(), corrupt.abs())
    gap = torch.where(gap.abs() <= ROUND_OFF * size, torch.nan, gap)
    values = {
        "patched": own,
        "null_patched": null,
        "clean": clean.expand_as(own),
        "corrupt": corrupt.expand_as(own),
        "recovery": (own - corrupt) / gap,
        "null_recovery": (null - corrupt) / gap,
    }
    return {name: value.permute(2, 0, 1).numpy() for name, value in values.items()}


def attribution_parts(
    model: LanguageModel,
    items: Sequence[Item],
    *,
    room: int,
    side: Side = "left",
) -> Iterator[tuple[Part, tuple[str, ...]]]:
    """What every component adds to the logit of the answer over the corrupt answer's.

    See `logit_attribution`; first tokens are compared. The null is the same difference
    after the corrupt prompt, where there is one.

    Yields:
        The rows of some prompts, and the names of the components.
    """
    compared = [item for item in items if item.compared]
    for some in packed(compared, lambda item: len(item.tokens), room):
        found = _attributed(model, some, [item.tokens for item in some], side)
        value = at_least_single(found.values)
        null = torch.full_like(value, torch.nan)
        twins = [row for row, item in enumerate(some) if item.corrupt is not None]
        if twins:
            own = [some[row] for row in twins]
            texts = [item.corrupt or () for item in own]
            null[:, twins] = _attributed(model, own, texts, side).values.to(null)
        names = tuple(map(str, found.labels["component"]))
        axes = {"prompt": [i.index for i in some], "component": range(len(names))}
        values = {"value": value.T.numpy(), "null_value": null.T.numpy()}
        yield long(axes, values, np.ones((1, 1), bool)), names


def _attributed(
    model: LanguageModel, items: Sequence[Item], texts: Sequence[Tokens], side: Side
) -> Measurement:
    batch = pack(model, texts, side=side).batch
    targets = torch.tensor([i.answers[0][0] for i in items], device=model.device)
    wrong = torch.tensor([item.wrong for item in items], device=model.device)
    return logit_attribution(model, batch.with_targets(targets), wrong)
