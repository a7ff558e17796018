"""The verb `calibrate`: every claim on every null. Could it have failed?"""

import argparse
from pathlib import Path

from circuits.study import STUDIES

from .request import CONFIRMED, NOT_CONFIRMED, check_json


def add_calibrate_options(parser: argparse.ArgumentParser) -> None:
    """The options of `calibrate`."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="STUDY_OR_RUN",
        help="shipped runs by their study, or runs of your own; default: all shipped",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table")


def run_calibrate(options: argparse.Namespace) -> int:
    """Judge the claims of every run on its nulls, planted labs and impostors."""
    check_json(options.json)
    from circuits.confirm import open_lab
    from circuits.report.calibration import calibrate, print_calibrations
    from circuits.report.tables import console
    from trained.store import open_run, write_json

    runs = [open_run(name) for name in options.runs or STUDIES]
    found = [calibrate(open_lab(run)) for run in runs]
    print_calibrations(console(), found)
    if options.json:
        write_json(options.json, [calibration.as_dict() for calibration in found])
    return CONFIRMED if all(c.as_expected for c in found) else NOT_CONFIRMED
