"""The verb `report`: one self-contained page."""

import argparse
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


def run_report(options: argparse.Namespace) -> int:
    """Gather what was asked for and write the page."""
    check_page("--output", options.output)
    from circuits.report.gather import default_targets, papers
    from circuits.report.inspected import read_inspected
    from circuits.report.page import write_page

    prompts = [prompt for path in options.inspect for prompt in read_inspected(path)]
    found = papers(options.runs or default_targets())
    print(write_page(options.output, found, prompts))
    return CONFIRMED


def check_page(option: str, output: Path) -> None:
    """Refuse what cannot be written before the work is done, not after."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"{option} {output}: give a file that ends with .html")
    check_output(option, output)
