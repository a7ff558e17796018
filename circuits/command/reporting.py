"""The verb `report`: one self-contained page."""

import argparse
import sys
from pathlib import Path

from trained.errors import BadInput

from .output import check_output
from .request import CONFIRMED


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """The options of `report`."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="runs, zoo names or verdict files; default: all shipped runs",
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


def run_report(options: argparse.Namespace) -> int:
    """Gather what was asked for and write the page."""
    check_page("--output", options.output)
    from circuits.report.gather import default_targets, from_lab, open_target
    from circuits.report.inspected import read_inspected
    from circuits.report.page import write_page

    prompts = [prompt for path in options.inspect for prompt in read_inspected(path)]
    targets = options.runs or default_targets()
    # All are opened before any is judged, so that a bad one costs no minutes.
    opened = [open_target(target) for target in targets]
    papers = []
    for target, found in zip(targets, opened, strict=True):
        if isinstance(found, list):
            papers += found
        else:
            print(f"{target}: judging and drawing", file=sys.stderr)
            papers.append(from_lab(found))
    print(write_page(options.output, papers, prompts))
    return CONFIRMED


def check_page(option: str, output: Path) -> None:
    """Refuse what cannot be written before the work is done, not after."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"{option} {output}: give a file that ends with .html")
    check_output(option, output)
