"""What does a part of a model carry? Take its content away and see what is lost.

`Zero` removes a part, `Mean` leaves what it says on average, `Resample` lets it speak
of another prompt: the three usual ablations, from the crudest to the one that stays
on the model's own distribution. Any of them works on heads, layers, MLPs and
positions: see `Target`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from circuits.hooks import Model
from probes.measurement import Measurement

from .cells import Cell, acting, merged
from .places import Examples
from .replacement import Mean as Mean
from .replacement import Replacement, replacing
from .replacement import Resample as Resample
from .replacement import Zero as Zero
from .sweep import Reading, sweep
from .targets import Grid, Target


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
