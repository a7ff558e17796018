"""The checks on the stand-in device, in a process that has it from the beginning.

The engine of autograd counts the devices at its first backward pass, and no other test
should see one more.
"""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("checks", sorted(f.name for f in HERE.glob("check_*.py")))
def test_on_the_stand_in_device(checks: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", HERE / checks]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
