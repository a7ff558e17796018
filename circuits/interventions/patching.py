"""Where is what a clean prompt has and a corrupt one lacks? Put it back, by place.

Activation patching: the model runs on the corrupt prompt, with one activation taken
from its run on the clean prompt. Falsified by: no place restores the answer, or every
place does.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.hooks import Model
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.task import Batch

from .edit import Transplant, part_edits
from .metric import Reading
from .part import Grid, Part
from .passes import logits_and_activations
from .sweep import derived, known, require_moved, unproven_sweep


@torch.no_grad()
def patch_sweep(
    model: Model,
    clean: Batch,
    corrupt: Batch,
    grid: Grid[Part],
    reading: Reading,
) -> Measurement:
    """The metric on corrupt prompts, each target of a grid patched from the clean ones.

    Any site can be patched, by layer and position (`position_grid`; a role may be at
    other positions in the clean prompt) or by head (`head_grid`). The clean prompts'
    targets judge both.

    Returns:
        A Measurement as `sweep` gives it; its provenance also holds `clean`, the
        metric on the clean prompts.
    """

    def patched(clean: Batch, corrupt: Batch, reading: Reading) -> Measurement:
        sites = {part.site for part in grid.items}
        logits, seen = logits_and_activations(model, clean, sites, reading.at)
        edits = part_edits(model, corrupt, grid.items, Transplant(clean, seen))
        swept = unproven_sweep(
            model, corrupt, grid, lambda part: {part.site: edits[part]}, reading
        )
        return with_clean(swept, reading.of(logits, clean))

    whole = any(isinstance(part.units, Tensor) for part in grid.items)
    return by_examples(clean, corrupt, reading, patched, whole=whole)


Patched = Callable[[Batch, Batch, Reading], Measurement]
"""(clean, corrupt, reading) -> a sweep that may be inert, and knows the clean metric"""


def by_examples(
    clean: Batch,
    corrupt: Batch,
    reading: Reading,
    patched: Patched,
    *,
    whole: bool = False,
) -> Measurement:
    """A sweep of pairs of prompts, some of them at a time.

    What is kept of the runs does not grow with the number of pairs: see `Reading`.

    Args:
        clean: the prompts whose targets judge both.
        corrupt: the others.
        reading: says how much is done at once.
        patched: the sweep of some pairs.
        whole: whether the cells are made for all pairs at once.
    """
    judged = corrupt.with_targets(clean.targets)
    chunks = [(slice(None), reading)] if whole else reading.chunks(judged)
    parts = [patched(clean.rows(r), judged.rows(r), own) for r, own in chunks]
    first, *others = (part.provenance for part in parts)
    inert = [c for c in first["inert"] if all(c in other["inert"] for other in others)]
    several = {
        what: [value for part in parts for value in part.provenance[what]]
        for what in ("unedited", "clean")
    }
    swept = Measurement(
        torch.cat([part.values for part in parts], -1),
        parts[0].axes,
        {axis: parts[0].labels[axis] for axis in parts[0].axes if axis != "example"},
        name=parts[0].name,
        provenance={**first, **several, "inert": inert},
    )
    require_moved(swept)
    return swept


def with_clean(swept: Measurement, clean: Float[Tensor, " example"]) -> Measurement:
    """A sweep that knows the metric on the clean prompts."""
    return Measurement(
        swept.values,
        swept.axes,
        swept.labels,
        name=swept.name,
        provenance={**swept.provenance, "clean": clean.tolist()},
    )


def effect(patched: Measurement) -> Measurement:
    """The restored share of the metric: 0 as corrupt, 1 as clean, by example.

    (m_i - corrupt_i) / mean over j of (clean_j - corrupt_j). The denominator is shared,
    so that an example whose prompts hardly differ does not blow up; the mean over
    examples is the ratio of means. Outside [0, 1] where a patch harms or overshoots.
    """
    corrupt, clean = known(patched, "unedited"), known(patched, "clean")
    gap = _gap(clean, corrupt)
    return derived(patched, (patched.values - corrupt) / gap, "restored share")


def _gap(clean: Float[Tensor, " example"], corrupt: Float[Tensor, " example"]) -> float:
    gap = float((clean - corrupt).mean())
    size = float(torch.cat([clean, corrupt]).abs().mean())
    if abs(gap) <= 1e-5 * size:
        raise BadInput(
            f"the metric is {float(clean.mean()):.4g} on clean and on corrupt prompts: "
            "there is nothing to restore"
        )
    return gap
