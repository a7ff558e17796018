"""Many interventions on the same prompts, several in one pass, as one Measurement.

Every cell of a grid is one intervention. Where a model lets us, a cell is a branch of
one stored run (`cone`). Else cells that begin in the same block share a pass: the
prompts are repeated, and each repetition gets the edits of its own cell. The values are
those of one cell at a time.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.hooks import Edit, Model, intervene, readout_of
from circuits.progress import each, step
from circuits.sites import Site
from probes.measurement import Measurement
from probes.statistics import bootstrap_interval
from trained.errors import NothingChanged
from trained.task import Batch

from .cone import Cone, branching_of, cone, has_cone
from .edit import Edits, changed
from .metric import Metric as Metric
from .metric import Reading as Reading
from .metric import logit_difference as logit_difference
from .metric import require_answers as require_answers
from .metric import target_log_prob as target_log_prob
from .part import Grid, Places
from .passes import activations, answer_logits, can_resume, resumed_logits

Item = TypeVar("Item")

INTERVENING = "intervening: part"
"""What a sweep does, for whoever waits for it."""

LAST_LAYER = 10**6
"""Where edits of the logits begin: behind every block."""


@torch.no_grad()
def sweep(
    model: Model,
    examples: Batch,
    grid: Grid[Item],
    cell_of: Callable[[Item], Edits],
    reading: Reading,
) -> Measurement:
    """The metric under every intervention of a grid, example by example.

    Returns:
        A Measurement with the grid's axes, then "example". Its provenance holds
        `unedited` (the metric without intervention, by example) and `inert` (the
        labels of cells whose edits left the activations of all examples as they were:
        their value is that of no intervention).

    Raises:
        BadInput: if every cell is inert.
    """
    swept = unproven_sweep(model, examples, grid, cell_of, reading)
    require_moved(swept)
    return swept


@torch.no_grad()
def unproven_sweep(
    model: Model,
    examples: Batch,
    grid: Grid[Item],
    cell_of: Callable[[Item], Edits],
    reading: Reading,
) -> Measurement:
    """A sweep of some of the examples: all of its cells may be inert."""
    cells = dict(enumerate(cell_of(item) for item in grid.items))
    found = _values(model, examples, cells, reading)
    order = range(len(cells))
    values = torch.stack([found.values[number] for number in order])
    moved = torch.stack([found.moved[number] for number in order])
    return Measurement(
        values.reshape(*(len(labels) for labels in grid.axes.values()), -1),
        (*grid.axes, "example"),
        grid.axes,
        name="metric",
        provenance={
            "unedited": found.unedited.tolist(),
            "inert": _labels(grid, ~moved.any(1)),
            "read_at": str(reading.at),
        },
    )


def require_moved(swept: Measurement) -> None:
    """`BadInput` if every cell is inert."""
    if len(swept.provenance["inert"]) * swept.values.shape[-1] == swept.values.numel():
        raise NothingChanged("no intervention of the sweep changed an activation")


def change(swept: Measurement) -> Measurement:
    """The metric with an intervention minus the metric without, by example."""
    return derived(swept, swept.values - known(swept, "unedited"), "change of metric")


def summary(
    measurement: Measurement, *, level: float = 0.95, seed: int = 0
) -> Measurement:
    """Mean over examples with its bootstrap interval; axes ("statistic", ...).

    The statistics are "mean", "low" and "high".
    """
    kept = tuple(axis for axis in measurement.axes if axis != "example")
    order = [measurement.axes.index(axis) for axis in (*kept, "example")]
    values = measurement.values.permute(order).double()
    rows = [
        (float(row.mean()), *bootstrap_interval(row, level=level, seed=seed))
        for row in values.flatten(0, -2)
    ]
    return Measurement(
        torch.tensor(rows, dtype=values.dtype).T.reshape(3, *values.shape[:-1]),
        ("statistic", *kept),
        {
            "statistic": ("mean", "low", "high"),
            **{axis: measurement.labels[axis] for axis in kept},
        },
        name=measurement.name,
        unit=measurement.unit,
        provenance={**measurement.provenance, "level": level},
    )


def known(swept: Measurement, what: str) -> Float[Tensor, " example"]:
    """The metric by example that a sweep keeps in its provenance."""
    return torch.tensor(swept.provenance[what], dtype=swept.values.dtype)


def derived(swept: Measurement, values: Tensor, name: str) -> Measurement:
    """Other values for the cells and examples of a sweep."""
    return Measurement(
        values, swept.axes, swept.labels, name=name, provenance=swept.provenance
    )


@dataclass
class _Found:
    """The metric without intervention and, by the number of a cell, with it.

    Attributes:
        unedited: the metric, example by example.
        values: the same of every cell.
        moved: whether the cell's edits moved an activation, example by example.
    """

    unedited: Float[Tensor, " batch"]
    values: dict[int, Float[Tensor, " batch"]] = field(default_factory=dict)
    moved: dict[int, Bool[Tensor, " batch"]] = field(default_factory=dict)


def _values(
    model: Model, examples: Batch, cells: Mapping[int, Edits], reading: Reading
) -> _Found:
    """What is found of numbered cells, as branches where that is exact."""
    branches = {number: cell for number, cell in cells.items() if has_cone(cell)}
    branching = branching_of(model, examples) if branches else None
    if branching is None:
        unedited = reading.of(answer_logits(model, examples, reading.at), examples)
        found, rest = _Found(unedited), cells
    else:
        begun = cone(model, branching, examples, branches, reading)
        found = _branched(begun, examples, branches, reading)
        rest = {number: cells[number] for number in cells if number not in branches}
    if rest:
        _run_in_chunks(model, examples, rest, reading, found)
    return found


def _branched(
    begun: Cone, examples: Batch, cells: Mapping[int, Edits], reading: Reading
) -> _Found:
    readout = readout_of(begun.model)
    found = _Found(reading.of_residual(begun.unedited, examples, readout))
    with step(INTERVENING, len(cells)) as done:
        for answer in begun.walk(cells):
            metric = reading.of_residual(answer.residual, examples, readout)
            found.values[answer.cell] = metric
            found.moved[answer.cell] = answer.moved.cpu()
            done(len(found.values))
    return found


def _run_in_chunks(
    model: Model,
    examples: Batch,
    cells: Mapping[int, Edits],
    reading: Reading,
    found: _Found,
) -> None:
    """Find what cells do that share passes over repeated prompts."""
    starts = _starts(cells)
    residuals: Mapping[Site, Tensor] = {}
    if can_resume(model):
        wanted = {Site("resid_pre", layer) for layer in starts if layer != LAST_LAYER}
        residuals = activations(model, examples, sorted(wanted))
    n_examples, at_once = len(examples.targets), reading.tokens_at_once
    parts = [
        (start, part)
        for start, numbers in starts.items()
        for part in _parts(numbers, examples.tokens.numel(), at_once)
    ]
    for start, part in each(INTERVENING, parts):
        chunk = _Chunk([cells[number] for number in part], n_examples)
        residual = residuals.get(Site("resid_pre", start))
        logits = chunk.logits(model, examples, residual, start, reading.at)
        by_cell = torch.split(logits, n_examples)
        metrics = [reading.of(rows, examples) for rows in by_cell]
        found.values |= zip(part, metrics, strict=True)
        found.moved |= zip(part, chunk.moved, strict=True)


class _Chunk:
    """Several cells in one pass: the prompts once for every cell, cell by cell."""

    def __init__(self, cells: Sequence[Edits], n_examples: int) -> None:
        self.cells = cells
        self.n_examples = n_examples
        self.moved = torch.zeros(len(cells), n_examples, dtype=torch.bool)

    def logits(
        self,
        model: Model,
        examples: Batch,
        residual: Tensor | None,
        start: int,
        read_at: Places,
    ) -> Float[Tensor, "row d_vocab"]:
        """The logits at the answer of every cell and example."""
        rows = torch.arange(self.n_examples, device=examples.tokens.device)
        several = examples.rows(rows.repeat(len(self.cells)))
        places = {site for cell in self.cells for site in cell}
        with intervene(model, {site: self._edit(site) for site in sorted(places)}):
            if residual is None:
                return answer_logits(model, several, read_at)
            stacked = residual.repeat(len(self.cells), 1, 1)
            return resumed_logits(model, several, stacked, start, read_at)

    def _edit(self, site: Site) -> Edit:
        def apply(activation: Tensor) -> Tensor:
            parts = list(torch.split(activation, self.n_examples))
            for number, cell in enumerate(self.cells):
                if site in cell:
                    edited = cell[site](parts[number])
                    self.moved[number] |= changed(parts[number], edited).cpu()
                    parts[number] = edited
            return torch.cat(parts)

        return apply


def _starts(cells: Mapping[int, Edits]) -> dict[int, list[int]]:
    """The numbers of the cells by the first block that they change."""
    starts: dict[int, list[int]] = defaultdict(list)
    for number, cell in cells.items():
        layers = [s.layer if s.kind != "logits" else LAST_LAYER for s in cell]
        starts[min(layers)].append(number)
    return dict(sorted(starts.items()))


def _parts(
    numbers: Sequence[int], tokens: int, tokens_at_once: int
) -> Iterator[list[int]]:
    size = max(1, tokens_at_once // tokens)
    for first in range(0, len(numbers), size):
        yield list(numbers[first : first + size])


def _labels(grid: Grid[Item], chosen: Bool[Tensor, " cell"]) -> list[dict[str, Any]]:
    sizes = [len(labels) for labels in grid.axes.values()]
    found = []
    for number in chosen.nonzero()[:, 0].tolist():
        place = torch.unravel_index(torch.tensor(number), sizes)
        labels = zip(grid.axes.items(), place, strict=True)
        found.append({axis: values[int(index)] for (axis, values), index in labels})
    return found
