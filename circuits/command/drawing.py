"""The verb `figure`: one figure of a run, or all of them."""

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from circuits.study import find
from trained.errors import BadInput, unknown

from .output import check_output
from .request import CONFIRMED

if TYPE_CHECKING:
    from circuits.lab import Lab
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
    parser.add_argument(
        "--style", default="paper", metavar="paper|slides|dark", help="of the figure"
    )


def run_figure(options: argparse.Namespace) -> int:
    """Draw what was asked for, after everything about the request was checked."""
    from probes.figures import FORMATS, STYLES

    if options.style not in STYLES:
        raise unknown("style", options.style, STYLES)
    one = options.kind != ALL
    if one and options.output.suffix.lower().removeprefix(".") not in FORMATS:
        raise unknown("figure format", options.output.suffix, FORMATS)
    check_output("--output", options.output if one else options.output / "x")
    from circuits.confirm import open_lab
    from trained.store import open_run

    run = open_run(options.run)
    study = find(run.study)
    if not one:
        draw_all(run, options.output, options.style)
        return CONFIRMED
    if options.kind not in study.figures:
        raise unknown(f"figure of {study.slug}", options.kind, [*study.figures, ALL])
    draw_one(open_lab(run), options.kind, options.output, options.style)
    return CONFIRMED


def draw_all(run: "Run", folder: Path, style: str = "paper") -> None:
    """Every figure of a run that its arms suffice for."""
    from circuits.confirm import open_lab

    lab = open_lab(run)
    for kind in lab.study.figures:
        try:
            draw_one(lab, kind, folder / f"{kind}.png", style)
        except BadInput as error:
            print(f"no figure {kind}: {error}")


def draw_one(lab: "Lab", kind: str, file: Path, style: str = "paper") -> None:
    """A figure, and its caption as a text beside it."""
    from circuits.report.figures import about, made
    from probes.figures import save, styled
    from trained.files import write_bytes

    draw = lab.study.figures[kind]
    with styled(style):
        print(save(draw(lab), file, foot=f"{lab.study.slug}: {made(lab)}"))
    caption = f"{about(draw)} ({lab.study.slug} {kind}: {made(lab)})"
    write_bytes(file.with_suffix(".txt"), f"{textwrap.fill(caption, 88)}\n".encode())
