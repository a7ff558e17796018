"""The verb `figure`: one figure of a run, or all of them."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from circuits.study import find
from trained.errors import BadInput, unknown

from .output import check_output
from .request import CONFIRMED

if TYPE_CHECKING:
    from trained.store import Run

ALL = "all"
"""The kind that stands for every figure of the study."""


def add_figure_options(parser: argparse.ArgumentParser) -> None:
    """The options of `figure`."""
    parser.add_argument(
        "kind", metavar="KIND", help="see `reasonscope list STUDY`; `all`: every kind"
    )
    parser.add_argument("run", metavar="RUN_OR_ZOO")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="ends with .png, .svg or .pdf; a directory for `all`",
    )


def run_figure(options: argparse.Namespace) -> int:
    """Draw what was asked for, after everything about the request was checked."""
    from probes.figures import FORMATS, save

    one = options.kind != ALL
    if one and options.output.suffix.lower().removeprefix(".") not in FORMATS:
        raise unknown("figure format", options.output.suffix, FORMATS)
    check_output("--output", options.output if one else options.output / "x")
    from circuits.confirm import open_lab
    from trained.store import open_run

    run = open_run(options.run)
    study = find(run.study)
    if not one:
        draw_all(run, options.output)
        return CONFIRMED
    if options.kind not in study.figures:
        raise unknown(f"figure of {study.slug}", options.kind, [*study.figures, ALL])
    print(save(study.figures[options.kind](open_lab(run)), options.output))
    return CONFIRMED


def draw_all(run: "Run", folder: Path) -> None:
    """Every figure of a run that its arms suffice for."""
    from circuits.confirm import open_lab
    from probes.figures import save

    lab = open_lab(run)
    for kind, draw in lab.study.figures.items():
        try:
            print(save(draw(lab), folder / f"{kind}.png"))
        except BadInput as error:
            print(f"no figure {kind}: {error}")
