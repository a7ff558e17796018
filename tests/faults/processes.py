"""A command in a session of its own, and how it ends when somebody ends it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "circuits.command.cli")
PATIENCE = 30.0
"""Seconds in which whatever was ended has to be gone."""

Target = Literal["parent", "group", "worker"]


@dataclass
class Ended:
    """How a command ended."""

    code: int
    said: str
    complaints: list[str] = field(default_factory=list)


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    """The process of a command, with what it says to be read at the end."""
    return subprocess.Popen(
        arguments,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def run(arguments: Sequence[str]) -> Ended:
    """A command that is left in peace."""
    process = start(arguments)
    said, _ = process.communicate()
    return Ended(process.returncode, said)


def ended(
    arguments: Sequence[str],
    number: signal.Signals,
    target: Target,
    ready: Callable[[], bool],
    pause: float,
) -> Ended:
    """A command that is sent a signal a while after it is ready, if it still lives."""
    process = start(arguments)
    while process.poll() is None and not ready():
        time.sleep(0.01)
    time.sleep(pause)
    while process.poll() is None and number is not signal.SIGKILL:
        # Before our first line runs it is Python that answers.
        if _hears(process.pid):
            break
        time.sleep(0.01)
    if process.poll() is None:
        _send(process.pid, number, target)
    sent = time.monotonic()
    said, _ = process.communicate()
    complaints = []
    if target != "worker" and time.monotonic() - sent > PATIENCE:
        complaints.append(f"it took {time.monotonic() - sent:.0f} s to end")
    if not _gone(process.pid):
        complaints.append(f"processes outlive it: {_members(process.pid)}")
    return Ended(process.returncode, said, complaints)


def _send(pid: int, number: signal.Signals, target: Target) -> None:
    if target == "group":
        os.killpg(pid, number)
        return
    victims = _workers(pid)[:1] if target == "worker" else [pid]
    for victim in victims:
        os.kill(victim, number)


def _workers(pid: int) -> list[int]:
    """The forks of the server that a command started for them."""
    found = _members(pid)
    servers = [p for p in found if _parent(p) == pid and b"forkserver" in _words(p)]
    return [p for p in found if _parent(p) in servers]


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _hears(pid: int) -> bool:
    """Whether the command has begun: from then on it takes SIGTERM for Ctrl-C."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def _gone(session: int) -> bool:
    """Whether all processes of a session end soon."""
    deadline = time.monotonic() + PATIENCE
    while _members(session) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _members(session)


def _members(session: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            fields = _stat(int(folder.name))
            if fields and int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
    return sorted(found)


def _stat(pid: int) -> list[str]:
    """Its state, its parent and what follows; nothing of a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
