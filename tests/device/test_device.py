"""The checks on the stand-in device, in a process that has it from the beginning.

The engine of autograd counts the devices at its first backward pass, and no other test
should see one more.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKS = sorted(HERE.glob("check_*.py"))
ALONE = os.environ.get("DEVICE_EVERY") == "1"
"""A process takes ten seconds to begin, so only what takes long has one per file."""
PLAIN = ("-p", "no:xdist", "-o", "addopts=--import-mode=importlib --strict-markers")
"""Axes are checked on the CPU, in the tests of what is compared here."""


@pytest.mark.slow
@pytest.mark.parametrize("checks", [[f] for f in CHECKS] if ALONE else [CHECKS])
def test_on_the_stand_in_device(checks: list[Path]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", *PLAIN, *checks]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
