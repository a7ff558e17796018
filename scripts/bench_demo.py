"""How long `make demo` takes, the install left out.

python -m scripts.bench demo
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .bench_timing import Line

AS_EXPECTED = (0, 1)
"""1 says that some claim was not confirmed: a result, not a failure."""


def lines() -> Iterator[Line]:
    """Wall time, which on a busy machine is not that of an idle one."""
    command = [str(Path(sys.executable).with_name("reasonscope")), "confirm"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--preset", "quick", "--out", folder, "--figures"]
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
    if done.returncode not in AS_EXPECTED:
        raise RuntimeError(done.stderr)
    yield Line("make demo, seconds", seconds, "demo.seconds", "<= 360")
