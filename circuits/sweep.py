"""Phase diagrams: a study's claims at every place of a grid of configurations.

Each place is a run like any other, so a sweep that was killed goes on where it stopped
and a later one with more places trains only those.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from probes.measurement import Measurement
from trained.errors import BadInput, Incomplete

from . import progress
from .claims import Verdict
from .confirm import Confirmation, confirm_run
from .study import Request
from .training import executor_for, prepare, train_run

MOST_CELLS = 1_000


@dataclass(frozen=True)
class Cell:
    """One place of the grid: what was set there, and what came out."""

    setting: tuple[str, ...]
    """A value for each key of the grid."""
    done: Confirmation | None
    refused: str = ""
    """Why this configuration cannot be run, if so."""
    failed: str = ""
    """What went wrong on the way, if so; the next sweep takes it up again."""

    def verdict(self, claim: str) -> Verdict | None:
        """What was found of a claim; None where nothing was run."""
        judged = self.done.verdicts if self.done else ()
        return next((v for v in judged if v.claim.id == claim), None)

    def as_dict(self, keys: Sequence[str]) -> dict[str, Any]:
        """As JSON, the verdict file of the cell within."""
        return {
            "setting": dict(zip(keys, self.setting, strict=True)),
            "refused": self.refused,
            "failed": self.failed,
            "confirmation": self.done.as_dict() if self.done else None,
        }


def grid_of(assignments: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`key=a,b,c`, several times, as the values of each key.

    >>> grid_of(["width=2,4", "rate=0.1,0.2"])
    {'width': ('2', '4'), 'rate': ('0.1', '0.2')}
    """
    grid: dict[str, tuple[str, ...]] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        values = tuple(value.strip() for value in text.split(",") if value.strip())
        if not separator or not values or key.strip() in grid:
            raise BadInput(f"--grid {assignment}: give key=a,b,c, each key once")
        if len(set(values)) != len(values):
            raise BadInput(f"--grid {assignment}: a value twice")
        grid[key.strip()] = values
    n_cells = 1
    for values in grid.values():
        n_cells *= len(values)
    if not grid or n_cells > MOST_CELLS:
        raise BadInput(f"--grid: {n_cells} cells; give 1 to {MOST_CELLS}")
    return grid


def sweep(
    request: Request,
    grid: Mapping[str, tuple[str, ...]],
    *,
    only: str = "*",
) -> Iterator[Cell]:
    """Train and judge every place of the grid, one after the other.

    All places are checked before the first is trained; one that no configuration allows
    is a refused cell, unless all are; one that meets a fault is a failed one.
    """
    settings = list(product(*grid.values()))
    requests = [_request_at(request, grid, setting) for setting in settings]
    if all(isinstance(found, str) for found in requests):
        raise BadInput(str(requests[0]))
    for found in requests:
        if isinstance(found, Request):
            found.claims(only)
    cells = list(zip(settings, requests, strict=True))
    for setting, found in progress.each("sweep: cell", cells):
        if isinstance(found, str):
            yield Cell(setting, None, found)
            continue
        run = prepare(found)
        executor = executor_for(found)
        try:
            train_run(run, executor=executor)
        except Incomplete as error:
            # The other places do not depend on it.
            yield Cell(setting, None, failed=str(error))
            continue
        yield Cell(setting, confirm_run(run, only=only, executor=executor))


def _request_at(
    request: Request, grid: Mapping[str, tuple[str, ...]], setting: tuple[str, ...]
) -> Request | str:
    """The request of one place, or why there is none."""
    changes = tuple(f"{k}={v}" for k, v in zip(grid, setting, strict=True))
    try:
        return replace(request, assignments=(*request.assignments, *changes))
    except BadInput as error:
        return str(error)


def claims_of(cells: Sequence[Cell]) -> list[str]:
    """The claims that some cell judged, in the order of the tree."""
    found: dict[str, None] = {}
    for cell in cells:
        judged = cell.done.verdicts if cell.done else ()
        found.update({verdict.claim.id: None for verdict in judged})
    return list(found)


def phase_diagram(
    claim: str, cells: Sequence[Cell], grid: Mapping[str, tuple[str, ...]]
) -> tuple[Measurement, list[list[str]]]:
    """The mean of a claim's first condition over the grid, and the verdicts there.

    The first key goes down, the others, joined, across. NaN where nothing was measured.
    """
    first, *rest = grid
    across = [", ".join(values) for values in product(*(grid[key] for key in rest))]
    verdicts = [cell.verdict(claim) for cell in cells]
    means = [
        v.conditions[0].mean if v and v.conditions else float("nan") for v in verdicts
    ]
    words = [
        v.word if v else "failed" if cell.failed else "refused"
        for v, cell in zip(verdicts, cells, strict=True)
    ]
    columns = max(1, len(across))
    table = [words[i : i + columns] for i in range(0, len(words), columns)]
    values = torch.tensor(means).reshape(-1, columns)
    labels = {first: grid[first], " × ".join(rest) or "value": tuple(across)}
    return Measurement(values, tuple(labels), labels, name=claim), table
