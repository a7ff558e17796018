"""What does a part of a model carry? Take its content away and see what is lost.

`Zero` removes a part, `Mean` leaves what it says on average, `Resample` lets it speak
of another prompt: the three usual ablations, from the crudest to the one that stays
on the model's own distribution. Any of them works on heads, layers, MLPs and
positions: see `Target`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.hooks import Edit, Model
from circuits.sites import Site
from probes.measurement import Measurement

from .edit import Cell, Replacement, acting, merged, replacing
from .edit import Mean as Mean
from .edit import Resample as Resample
from .edit import Zero as Zero
from .part import Examples, Grid, Places, Target, place_mask
from .sweep import Reading, sweep


def ablate(
    model: Model, examples: Examples, targets: Sequence[Target], rule: Replacement
) -> AbstractContextManager[None]:
    """Replace the targets in every pass over these examples in the block.

    `BadInput` at the end of the block if a site was never reached or never changed.
    """
    values = rule.values(model, examples, targets)
    edits = [(t.site, replacing(t, examples, values[t])) for t in targets]
    return acting(model, merged(edits))


def ablation_sweep(
    model: Model,
    examples: Examples,
    grid: Grid[Target],
    rule: Replacement,
    reading: Reading,
) -> Measurement:
    """The metric with each target of a grid replaced on its own; see `sweep`."""
    values = rule.values(model, examples, grid.items)

    def cell(target: Target) -> Cell:
        return {target.site: replacing(target, examples, values[target])}

    return sweep(model, examples, grid, cell, reading)


@dataclass(frozen=True)
class Edges:
    """What some queries read from some keys, in all heads of a layer or in some."""

    layer: int
    queries: Places = None
    keys: Places = None
    heads: tuple[int, ...] | None = None

    @property
    def site(self) -> Site:
        """Where the edges are."""
        return Site("pattern", self.layer)

    def without(self, examples: Examples) -> Edit:
        """The edit that cuts the edges."""
        target = Target(self.site, self.heads, self.queries)
        keys = place_mask(examples, self.keys)[:, None, None]

        def edit(pattern: Tensor) -> Tensor:
            cut = target.mask(examples, pattern) & keys
            return renormalised(pattern.masked_fill(cut, 0.0), pattern)

        return edit


def renormalised(
    pattern: Float[Tensor, "batch head query key"],
    original: Float[Tensor, "batch head query key"],
) -> Float[Tensor, "batch head query key"]:
    """Rows scaled to the sums of the original ones; rows without weight stay zero.

    A query whose only keys are cut reads nothing. Rows that kept all their weight are
    left as they are, to the last bit.
    """
    total, before = pattern.sum(-1, keepdim=True), original.sum(-1, keepdim=True)
    scaled = torch.where(total > 0, pattern * (before / total), 0.0)
    untouched = (pattern == original).all(-1, keepdim=True)
    return torch.where(untouched, original, scaled)


def knock_out(
    model: Model, examples: Examples, edges: Sequence[Edges]
) -> AbstractContextManager[None]:
    """Cut edges in every pass over these examples in the block.

    `BadInput` at the end of the block if the edges of a layer carried no weight, as
    those to a key behind the query do.
    """
    edits = [(group.site, group.without(examples)) for group in edges]
    return acting(model, merged(edits))


def knockout_sweep(
    model: Model, examples: Examples, grid: Grid[Edges], reading: Reading
) -> Measurement:
    """The metric with each group of edges of a grid cut on its own; see `sweep`."""

    def cell(edges: Edges) -> Cell:
        return {edges.site: edges.without(examples)}

    return sweep(model, examples, grid, cell, reading)


def edge_grid(
    layers: Sequence[int], heads: Sequence[int], *, queries: Places, keys: Places
) -> Grid[Edges]:
    """The same queries and keys in every layer and head."""
    items = tuple(
        Edges(layer, queries, keys, (head,)) for layer in layers for head in heads
    )
    return Grid({"layer": tuple(layers), "head": tuple(heads)}, items)
