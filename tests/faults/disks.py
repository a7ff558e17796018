"""Disks that are full or read-only: a tmpfs of some kilobytes, where one may mount."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from circuits.study import Request
from circuits.training import prepare, train_run

from . import processes
from .kills import prepared, train_command
from .study import REFERENCE
from .tally import Hashes, Row, hashes, litter

KILOBYTES = (16, 60, 200, 450, 700, 1000, 1400, 2000)
"""From nothing fits to all but the last files do."""


def can_mount(folder: Path) -> bool:
    """Whether this process may make a disk."""
    try:
        with _disk(folder / "probe", 16):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def _disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    folder.mkdir(parents=True)
    _mount(f"size={kilobytes}k", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def _mount(options: str, folder: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def full_disks(folder: Path, sizes: tuple[int, ...], whole: Hashes) -> Row:
    """Training onto a disk that is too small, and again when it has grown."""
    row = Row("a full disk")
    for size in sizes:
        with _disk(folder / f"disk-{size}", size) as disk:
            found = processes.run(train_command(disk))
            complaints = []
            if found.code != 3 or "No space left" not in found.said:
                complaints.append(f"{size} kB, exit code {found.code}: {found.said}")
            _mount("remount,size=64m", disk)
            run = prepared(disk)
            train_run(run)
            if hashes(run) != whole:
                complaints.append(f"{size} kB: the bits are not those of a large disk")
            row.add(found.said, complaints + litter(run))
    return row


def read_only_disks(folder: Path) -> Row:
    """Training onto a disk that may not be written to, before and after a start."""
    row = Row("a read-only disk")
    for begun in (False, True):
        with _disk(folder / f"read-only-{begun}", 4096) as disk:
            if begun:
                prepare(Request(REFERENCE, device="cpu", out=disk))
            _mount("remount,ro", disk)
            found = processes.run(train_command(disk))
            fine = found.code in (2, 3) and "Read-only" in found.said
            row.add(found.said, [] if fine else [f"{found.code}: {found.said}"])
    return row
