"""Where trained heads look: what the page's attention view is fed with."""

import base64
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from circuits.claims import NotTested
from circuits.hooks import sites_of
from circuits.lab import Lab
from trained.arm import SHUFFLED
from trained.errors import BadInput
from trained.task import Batch

LEVELS = 255
"""Weights are stored in bytes, so they are exact to 1/255."""

CODED = 100_000
"""From here on a token is the code of a whole clause: its place says more."""

MOST_WEIGHTS = 150_000
"""Of one study: as many bytes of the page."""


def attention_views(lab: Lab) -> list[dict[str, Any]]:
    """A view for each arm whose attention can be observed, of the run's first seed.

    Each is JSON: the labels of its axes ("step", "layer", "head", "query", "key") and
    the weights in that order, as bytes in base64. Twins on permuted answers are left
    out, and so is what would not fit `MOST_WEIGHTS`.
    """
    views, left = [], MOST_WEIGHTS
    for arm in lab.arms:
        if arm.endswith(SHUFFLED):
            continue
        for view, size in _view(lab, arm, left):
            views.append(view)
            left -= size
    return views


def _view(lab: Lab, arm: str, most: int) -> Iterator[tuple[dict[str, Any], int]]:
    """The view of an arm and its size; nothing where there is no pattern to see."""
    try:
        steps = tuple(lab.run.record(lab.arm(arm).name)["saved_steps"])
        layers = _layers(lab, arm)
        seed = lab.seeds_of(arm)[0]
        if not layers:
            return
        prompt = lab.examples(arm, seed).rows(slice(0, 1))
        seen = torch.stack([torch.stack(_patterns(lab, arm, s, layers)) for s in steps])
    except (BadInput, NotTested):
        return
    if seen.numel() > most:
        return
    _, _, n_heads, n_queries, n_keys = seen.shape
    names = labels(prompt)
    yield (
        {
            "arm": arm,
            "seed": seed,
            "step": list(steps),
            "layer": list(layers),
            "head": list(range(n_heads)),
            "query": _fitted(names, n_queries, "query"),
            "key": _fitted(names, n_keys, "key"),
            "weights": packed(seen),
        },
        seen.numel(),
    )


def _layers(lab: Lab, arm: str) -> tuple[int, ...]:
    model = lab.models(arm)[0]
    return tuple(sorted(s.layer for s in sites_of(model) if s.kind == "pattern"))


def _patterns(
    lab: Lab, arm: str, step: int, layers: Sequence[int]
) -> list[torch.Tensor]:
    """[head, query, key] of every layer, of the first seed's first example."""
    models = lab.models(arm, step)
    return [models.pattern(layer).values[0].float() for layer in layers]


def packed(weights: torch.Tensor) -> str:
    """Weights between 0 and 1 as bytes, in base64."""
    levels = (weights.clamp(0, 1) * LEVELS).round().to(torch.uint8)
    return base64.b64encode(levels.flatten().numpy().tobytes()).decode()


def labels(prompt: Batch) -> list[str]:
    """The tokens of a prompt, each with the roles that name its position."""
    roles: dict[int, list[str]] = defaultdict(list)
    for name, places in prompt.roles.items():
        for place in places[0].tolist():
            roles[place].append(name)
    tokens = prompt.tokens[0].tolist()
    # Where several roles name a position, the last is the most particular.
    return [
        " ".join((str(token) if token < CODED else f"{place + 1}.", *roles[place][-1:]))
        for place, token in enumerate(tokens)
    ]


def _fitted(names: Sequence[str], size: int, axis: str) -> list[str]:
    """Labels of an axis: the tokens, of one query the last of them, else numbers."""
    if size == len(names):
        return list(names)
    return [names[-1]] if size == 1 else [f"{axis} {place}" for place in range(size)]
