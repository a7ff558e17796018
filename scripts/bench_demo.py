"""How long `make demo` takes, the install left out, and how long its first verdict.

python -m scripts.bench demo
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from circuits.report.terminal import SIGNS

from .bench_timing import Line

AS_EXPECTED = (0, 1)
"""1 says that some claim was not confirmed: a result, not a failure."""


def lines() -> Iterator[Line]:
    """Wall time, which on a busy machine is not that of an idle one."""
    reasonscope = str(Path(sys.executable).with_name("reasonscope"))
    with tempfile.TemporaryDirectory() as folder:
        whole, first = seconds([reasonscope, *demo(Path(folder) / "demo")])
    yield Line("make demo, seconds", whole, "demo.seconds", "<= 360")
    yield Line("its first verdict, seconds", first, "demo.first_verdict", "<= 60")


def demo(folder: Path) -> list[str]:
    """What the Makefile gives to the command, in another folder."""
    options = ["--out", str(folder), "--report", str(folder / "report.html")]
    return ["confirm", "--preset", "quick", *options]


def seconds(command: Sequence[str]) -> tuple[float, float]:
    """How long a command takes, and how long until it prints a verdict.

    Raises:
        RuntimeError: it fails, or prints none.
    """
    first, started = None, time.perf_counter()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            encoding="utf-8",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if first is None and line.startswith(tuple(SIGNS.values())):
                    first = time.perf_counter() - started
        whole = time.perf_counter() - started
        errors.seek(0)
        said = errors.read()
    if process.returncode not in AS_EXPECTED or first is None:
        raise RuntimeError(said or f"exit code {process.returncode}, no verdict")
    return whole, first
