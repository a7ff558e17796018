"""The verb `claim`: all that is known of one claim."""

import argparse
from pathlib import Path
from typing import Any

from trained.errors import unknown

from .output import JsonOutput, add_json_option
from .request import CONFIRMED, NOT_CONFIRMED


def add_claim_options(parser: argparse.ArgumentParser) -> None:
    """The options of `claim`."""
    parser.add_argument("id", metavar="ID", help="such as lego.conc.c6")
    parser.add_argument(
        "target", metavar="RUN", help="a run, a zoo name or a verdict file"
    )
    add_json_option(parser, "the verdict")


def run_claim(options: argparse.Namespace) -> int:
    """Judge one claim on a run, or look it up in a file, and print all of it."""
    output = JsonOutput(options.json)
    from circuits.language import is_language, judged_claim
    from circuits.report.terminal import console, print_claim
    from circuits.report.verdicts import judged

    target = _shipped(options.target)
    if is_language(Path(target)):
        target = str(judged_claim(Path(target), options.id))
    whole = _verdicts(target, options.id)
    found = judged(whole, target, _run_of(target))
    leaf = next((leaf for leaf in found.leaves if leaf.id == options.id), None)
    if leaf is None:
        raise unknown("claim", options.id, [leaf.id for leaf in found.leaves])
    output.finish(next(v for v in whole["verdicts"] if v["claim"] == options.id))
    print_claim(console(stderr=output.takes_stdout), found, leaf)
    return CONFIRMED if leaf.verdict == "confirmed" else NOT_CONFIRMED


def _shipped(target: str) -> str:
    """The target; `results/STUDY.json` is installed, and meant from any directory."""
    from circuits.results import RESULTS

    own = RESULTS / Path(target).name
    named = Path(target).parent == Path("results") and not Path(target).exists()
    return str(own) if named and own.is_file() else target


def _run_of(target: str) -> str:
    return "" if Path(target).is_file() else target


def _verdicts(target: str, claim: str) -> Any:
    """The study's verdicts from a file, or this one measured."""
    if Path(target).is_file():
        from circuits.report.files import read_objects

        objects = read_objects(Path(target))
        slug = claim.partition(".")[0]
        return next((one for one in objects if one.get("study") == slug), objects[0])
    from circuits.confirm import confirm_run
    from trained.store import open_run

    return confirm_run(open_run(target), only=claim, partial=True).as_dict()
