"""The verb `sweep`: a study's claims over a grid of configurations."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuits.progress import say
from trained.errors import Incomplete

from .output import JsonOutput, add_json_option
from .request import CONFIRMED, add_request_options, request_from

if TYPE_CHECKING:
    from circuits.sweep import Cell


SIGNS = {
    "confirmed": "+",
    "refuted": "-",
    "inconclusive": "?",
    "not tested": "·",
    "refused": "x",
    "failed": "!",
}
"""What stands for a verdict in the cell of a heat map."""


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """The options of `sweep`."""
    parser.add_argument("study", metavar="STUDY")
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        required=True,
        metavar="KEY=A,B,..",
        help="values of a config key; repeat for more keys",
    )
    parser.add_argument(
        "--only", default="*", metavar="CLAIMS", help="ids like 'lego.length.*'"
    )
    add_json_option(parser, "the verdicts")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="a heat map for each claim"
    )
    add_request_options(parser)


def run_sweep(options: argparse.Namespace) -> int:
    """Train and judge every cell; what is done is written after each."""
    request = request_from(options.study, options)
    output = JsonOutput(options.json)
    from circuits.sweep import grid_of, sweep

    grid = grid_of(options.grid)
    cells: list[Cell] = []
    for cell in sweep(request, grid, only=options.only):
        cells.append(cell)
        where = ", ".join(f"{k}={v}" for k, v in zip(grid, cell.setting, strict=True))
        say(f"{where}: {cell.refused or cell.failed or _counts(cell)}")
        output.keep(_object(grid, cells))
    output.finish(_object(grid, cells))
    _show(cells, grid, stderr=output.takes_stdout)
    if options.output:
        for file in _draw(options.output, cells, grid):
            output.say(str(file))
    failed = [cell.failed for cell in cells if cell.failed]
    if failed:
        raise Incomplete("; ".join(failed))
    return CONFIRMED


def _counts(cell: "Cell") -> str:
    words = [verdict.word for verdict in cell.done.verdicts] if cell.done else []
    return ", ".join(f"{words.count(w)} {w}" for w in dict.fromkeys(words))


def _object(
    grid: Mapping[str, tuple[str, ...]], cells: Sequence["Cell"]
) -> dict[str, Any]:
    found = [cell.as_dict(list(grid)) for cell in cells]
    return {"grid": {k: list(v) for k, v in grid.items()}, "cells": found}


def _show(
    cells: Sequence["Cell"], grid: Mapping[str, tuple[str, ...]], *, stderr: bool
) -> None:
    """A table for each claim: the mean and the verdict in every cell."""
    from rich.table import Table

    from circuits.report.terminal import COLOURS, console
    from circuits.sweep import claims_of, phase_diagram

    page = console(stderr=stderr)
    for claim in claims_of(cells):
        values, words = phase_diagram(claim, cells, grid)
        down, across = values.axes
        table = Table(title=claim, title_justify="left")
        table.add_column(f"{down} \\ {across}")
        for label in values.labels[across]:
            table.add_column(str(label))
        rows = zip(values.labels[down], values.values.tolist(), words, strict=True)
        for label, numbers, found in rows:
            table.add_row(
                str(label),
                *(
                    f"[{COLOURS.get(word, 'white')}]{number:.3g} {word}[/]"
                    for number, word in zip(numbers, found, strict=True)
                ),
            )
        page.print(table)


def _draw(
    folder: Path, cells: Sequence["Cell"], grid: Mapping[str, tuple[str, ...]]
) -> Iterator[Path]:
    """A heat map for each claim that has values; gives the files."""
    from circuits.sweep import claims_of, phase_diagram
    from probes.figures import save, text_heatmap

    for claim in claims_of(cells):
        values, words = phase_diagram(claim, cells, grid)
        if values.values.isfinite().any():
            rows = zip(values.values.tolist(), words, strict=True)
            texts = [
                [f"{n:.2g} {SIGNS[w]}" for n, w in zip(*row, strict=True)]
                for row in rows
            ]
            key = ", ".join(f"{sign} {word}" for word, sign in SIGNS.items())
            named = replace(values, name=f"{claim}\n{key}")
            yield save(text_heatmap(named, texts), folder / f"{claim}.png")
