"""The verb `figure`: one figure of a run, or all of them."""

import argparse
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuits.inspection.request import STYLES, check_style
from circuits.progress import each, step
from trained.errors import BadInput, unknown

from .output import JsonOutput, add_json_option, check_output
from .request import CONFIRMED

if TYPE_CHECKING:
    from circuits.lab import Lab, LanguageLab

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
        "--style", default="paper", metavar="|".join(STYLES), help="of the figure"
    )
    add_json_option(parser, "the files, captions and what was not drawn")


def run_figure(options: argparse.Namespace) -> int:
    """Draw what was asked for, after everything about the request was checked."""
    from probes.figures import FORMATS

    check_style(options.style)
    one = options.kind != ALL
    if one and options.output.suffix.lower().removeprefix(".") not in FORMATS:
        raise unknown("figure format", options.output.suffix, FORMATS)
    check_output("--output", options.output if one else options.output / "x")
    output = JsonOutput(options.json)
    from circuits.confirm import opened

    lab = opened(options.run)
    name = lab.study.slug
    if not lab.figures:
        raise BadInput(f"{options.run}: {name} draws nothing of a language model")
    if one and options.kind not in lab.figures:
        raise unknown(f"figure of {name}", options.kind, [*lab.figures, ALL])
    if one:
        with step(f"{name}: drawing {options.kind}"):
            drawn = [draw_one(lab, options.kind, options.output, options.style)]
        output.say(drawn[0]["file"])
    else:
        drawn = draw_all(lab, options.output, options.style, told=output.say)
    output.finish({"run": options.run, "style": options.style, "figures": drawn})
    return CONFIRMED


def draw_all(
    lab: "Lab | LanguageLab",
    folder: Path,
    style: str = "paper",
    *,
    told: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Every figure that what is stored suffices for; of the others, why not.

    Each is told as soon as it is there: all of them can take minutes.
    """
    found: list[dict[str, Any]] = []
    for kind in each(f"{lab.study.slug}: drawing", list(lab.figures), str):
        try:
            found.append(draw_one(lab, kind, folder / f"{kind}.png", style))
            told(found[-1]["file"])
        except BadInput as error:
            found.append({"kind": kind, "file": None, "reason": str(error)})
            told(f"no figure {kind}: {error}")
    return found


def draw_one(
    lab: "Lab | LanguageLab", kind: str, file: Path, style: str = "paper"
) -> dict[str, Any]:
    """A figure and, as a text beside it, its caption; gives what was written where."""
    from circuits.claims import NotTested
    from circuits.report.figures import about, made
    from probes.figures import save, styled
    from trained.files import write_bytes

    draw = lab.figures[kind]
    with styled(style):
        try:
            figure = draw(lab)
        except NotTested as error:
            raise BadInput(str(error)) from error
        origin = made(lab, kind, figure)
        saved = save(figure, file, foot=f"{lab.study.slug}: {origin}")
    caption = f"{about(draw)} ({lab.study.slug} {kind}: {origin})"
    write_bytes(file.with_suffix(".txt"), f"{textwrap.fill(caption, 88)}\n".encode())
    return {"kind": kind, "file": str(saved), "caption": caption}
