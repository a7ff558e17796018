"""One owner at a time, and none that is dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trained.errors import Busy
from trained.lock import LOCK, owned

ROOT = Path(__file__).parents[2]


def holder(folder: Path) -> subprocess.Popen[str]:
    """Another process that owns a directory; it has it once it has said so."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom trained.lock import owned\n"
        f"with owned(Path({str(folder)!r})):\n"
        "    print('mine', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def test_another_owner_is_named_and_a_dead_one_is_succeeded(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(Busy, match=f"process {process.pid} is training"):
            owned(tmp_path).__enter__()
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / LOCK).exists()
    with owned(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"


def test_one_that_ends_in_time_is_waited_for(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        with owned(tmp_path, wait=30.0):
            pass


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), owned(tmp_path / "new"):
        raise ZeroDivisionError
    assert list((tmp_path / "new").iterdir()) == []
    with owned(tmp_path / "new"):
        pass
