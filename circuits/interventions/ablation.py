"""What does a part of a model carry? Take its content away and see what is lost.

`Zero` removes a part, `Mean` leaves what it says on average, `Resample` lets it speak
of another prompt: the three usual ablations, from the crudest to the one that stays
on the model's own distribution. `edit` has them and the other rules. Any of them works
on heads, layers, MLPs, positions and neurons: see `Part`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from circuits.hooks import Edit, Model
from circuits.sites import Site
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.task import Batch

from .edit import Rule, acting, merged, part_edits, renormalised
from .part import Grid, Part, Places, columns
from .sweep import Reading, sweep


def ablate(
    model: Model, batch: Batch, parts: Sequence[Part], rule: Rule
) -> AbstractContextManager[None]:
    """Apply a rule to the parts in every pass over these prompts in the block.

    `BadInput` at the end of the block if a site was never reached or never changed.
    """
    edits = part_edits(model, batch, parts, rule)
    return acting(model, merged((part.site, edits[part]) for part in parts))


def ablation_sweep(
    model: Model, batch: Batch, grid: Grid[Part], rule: Rule, reading: Reading
) -> Measurement:
    """The metric with the rule applied to each part on its own; see `sweep`."""
    edits = part_edits(model, batch, grid.items, rule)
    return sweep(model, batch, grid, lambda part: {part.site: edits[part]}, reading)


@dataclass(frozen=True)
class Edges:
    """What some queries read from some keys, in all heads of a layer or in some.

    Every query from every key; with `paired` the i-th query from the i-th key only.
    """

    layer: int
    queries: Places = None
    keys: Places = None
    heads: tuple[int, ...] | None = None
    paired: bool = False

    @property
    def site(self) -> Site:
        """Where the edges are."""
        return Site("pattern", self.layer)

    def without(self, batch: Batch) -> Edit:
        """The edit that cuts the edges and scales what is left to the former sums."""
        keys = None if self.keys is None else columns(batch, self.keys)
        part = Part("pattern", self.layer, self.heads, self.queries, keys)

        def edit(pattern: Tensor) -> Tensor:
            cut = part.mask(batch, pattern)
            if self.paired:
                cut = cut & self._pairs(batch, pattern)
            return renormalised(pattern.masked_fill(cut, 0.0), pattern)

        return edit

    def _pairs(self, batch: Batch, pattern: Tensor) -> Bool[Tensor, "batch 1 q k"]:
        """True at every query's own key."""
        queries, keys = columns(batch, self.queries), columns(batch, self.keys)
        if queries.shape != keys.shape:
            raise BadInput(
                f"{queries.shape[1]} queries {self.queries!r} and {keys.shape[1]} keys "
                f"{self.keys!r} cannot be paired"
            )
        mask = torch.zeros_like(pattern[:, :1], dtype=torch.bool)
        rows = torch.arange(len(mask), device=mask.device)[:, None]
        mask[rows, 0, queries, keys] = True
        return mask


def knock_out(
    model: Model, batch: Batch, edges: Sequence[Edges]
) -> AbstractContextManager[None]:
    """Cut edges in every pass over these prompts in the block.

    `BadInput` at the end of the block if the edges of a layer carried no weight, as
    those to a key behind the query do.
    """
    return acting(model, merged((group.site, group.without(batch)) for group in edges))


def knockout_sweep(
    model: Model, batch: Batch, grid: Grid[Edges], reading: Reading
) -> Measurement:
    """The metric with each group of edges of a grid cut on its own; see `sweep`."""
    return sweep(
        model, batch, grid, lambda edges: {edges.site: edges.without(batch)}, reading
    )


def edge_grid(
    layers: Sequence[int], heads: Sequence[int], *, queries: Places, keys: Places
) -> Grid[Edges]:
    """The same queries and keys in every layer and head."""
    items = tuple(
        Edges(layer, queries, keys, (head,)) for layer in layers for head in heads
    )
    return Grid({"layer": tuple(layers), "head": tuple(heads)}, items)
