"""The verb `report`: one self-contained page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trained.errors import BadInput

from .output import JsonOutput, add_json_option, check_output
from .request import CONFIRMED

if TYPE_CHECKING:
    from circuits.report.page import Paper


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """The options of `report`."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="runs (also of confirm --model), zoo names or verdict files; default: all "
        "shipped runs",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.html")
    parser.add_argument(
        "--inspect",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="also prompts that `reasonscope inspect -o DIR` looked at; repeatable",
    )
    add_json_option(parser, "what the page holds")


def run_report(options: argparse.Namespace) -> int:
    """Gather what was asked for and write the page."""
    check_page("--output", options.output)
    output = JsonOutput(options.json)
    from circuits.report.gather import default_targets, papers
    from circuits.report.inspected import read_inspected
    from circuits.report.page import FOR_FIGURES, within, write_page

    prompts = [prompt for path in options.inspect for prompt in read_inspected(path)]
    found = within(papers(options.runs or default_targets()), FOR_FIGURES)
    page = write_page(options.output, found, prompts)
    shown = {"papers": [_object(paper) for paper in found], "prompts": len(prompts)}
    output.finish({"page": str(page), "bytes": page.stat().st_size, **shown})
    output.say(str(page))
    return CONFIRMED


def _object(paper: "Paper") -> dict[str, Any]:
    """What the page shows of one study."""
    judged = paper.judged
    return {
        "study": judged.study,
        "model": judged.model,
        "preset": judged.preset,
        "seeds": list(judged.seeds),
        "verdicts": paper.score.counts,
        "score": paper.score.score,
        "figures": [figure.kind for figure in paper.figures],
        "left_out": list(paper.left_out),
    }


def check_page(option: str, output: Path) -> None:
    """Refuse what cannot be written before the work is done, not after."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"{option} {output}: give a file that ends with .html")
    check_output(option, output)
