"""The verb `calibrate`: every claim on every null. Could it have failed?"""

import argparse

from circuits.progress import each
from circuits.study import STUDIES

from .output import JsonOutput, add_json_option
from .request import CONFIRMED, NOT_CONFIRMED


def add_calibrate_options(parser: argparse.ArgumentParser) -> None:
    """The options of `calibrate`."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="STUDY_OR_RUN",
        help="shipped runs by their study, or runs of your own; default: all shipped",
    )
    add_json_option(parser, "the table")


def run_calibrate(options: argparse.Namespace) -> int:
    """Judge the claims of every run on its nulls, planted labs and impostors."""
    output = JsonOutput(options.json)
    from circuits.confirm import open_lab
    from circuits.report.calibration import calibrate, print_calibrations
    from circuits.report.terminal import console
    from trained.store import open_run

    runs = [open_run(name) for name in options.runs or STUDIES]
    found = [calibrate(open_lab(run)) for run in each("calibrate: run", runs)]
    output.finish([calibration.as_dict() for calibration in found])
    print_calibrations(console(stderr=output.takes_stdout), found)
    return CONFIRMED if all(c.as_expected for c in found) else NOT_CONFIRMED
