"""Faults, one after the other: kills, two owners, disks, edited files.

    make test-faults            or   python -m scripts.faults TRIES

Prints a table fault | tries | lost | tracebacks; a short version is part of the tests.
"""

import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.faults import fuzz
from tests.faults.disks import KILOBYTES, can_mount, full_disks, read_only_disks
from tests.faults.edits import edited_runs, edited_states
from tests.faults.interrupts import interrupted_hooks
from tests.faults.kills import (
    killed_judging,
    killed_library,
    killed_reports,
    killed_scans,
    killed_training,
    trained,
    two_at_once,
)
from tests.faults.tally import Row, hashes, table

TRIES = 4
"""Of each of twenty kinds of kill."""


def campaign(folder: Path, tries: int) -> Iterator[Row]:
    """Every fault; the cheap ones first."""
    reference = trained(folder / "reference")
    whole = hashes(reference)
    yield from edited_runs(reference.path, folder)
    yield edited_states(folder)
    yield from fuzz.campaign(reference, folder / "fuzz", tries * 5000)
    yield interrupted_hooks(2000)
    yield from killed_training(folder, tries, whole)
    yield from killed_library(folder, tries)
    yield from killed_judging(folder, tries)
    yield from killed_reports(folder, tries)
    yield from killed_scans(folder, tries)
    yield two_at_once(folder, tries, whole)
    if can_mount(folder):
        yield full_disks(folder, KILOBYTES, whole)
        yield read_only_disks(folder)
    else:
        print("full and read-only disks: not tested, no disk can be mounted here")


def main() -> int:
    """Run the campaign and print its table; the exit code says whether it is clean."""
    torch.set_num_threads(1)
    # A shell starts what it puts into the background deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tries = int(sys.argv[1]) if len(sys.argv) > 1 else TRIES
    rows, started = [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for row in campaign(Path(folder), tries):
            rows.append(row)
            passed = time.monotonic() - started
            _heading, line, *notes = table([row]).splitlines()
            print(f"{passed:5.0f} s  {line}", *notes, sep="\n", flush=True)
    print(table(rows))
    return 0 if all(row.clean for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
