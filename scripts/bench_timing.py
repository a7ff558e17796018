"""How benchmarks measure: interleaved processor times, and peaks of one's own process.

A busy machine slows everything down for a while. So variants run in turn, a ratio is
taken within a round, and of the rounds' ratios the median counts.
"""

import ctypes
import gc
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

Variants = Mapping[str, Callable[[], object]]

Rounds = dict[str, list[float]]
"""Seconds of every variant, round by round."""

MEGABYTE = 1024**2


class Line(NamedTuple):
    """One measured number; with a key it is one of those that we aim at."""

    name: str
    value: float
    key: str = ""
    aim: str = ""


def interleaved(variants: Variants, rounds: int) -> Rounds:
    """Seconds of every variant in every round, after one round to warm up."""
    seconds: Rounds = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, run in variants.items():
            spent = _seconds(run)
            if number > 0:
                seconds[name].append(spent)
    return seconds


def ratio(rounds: Rounds, name: str, base: str) -> float:
    """The median over rounds of a variant's time over another's."""
    pairs = zip(rounds[name], rounds[base], strict=True)
    return median(own / other for own, other in pairs)


def peak_growth(run: Callable[[], object]) -> float:
    """Megabytes by which the peak of this process exceeds what it holds before."""
    if torch.cuda.is_available():
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return (torch.cuda.max_memory_allocated() - before) / MEGABYTE
    _give_back()
    # Linux forgets the peak so far when it is told to; elsewhere the first one stays.
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")
    before = _peak()
    run()
    return _peak() - before


def in_own_process(module: str, arguments: Sequence[str]) -> float:
    """The number that a module prints when it is called with these arguments."""
    command = [sys.executable, "-m", module, *arguments]
    # Else glibc keeps what was freed for what comes next, or does not, by a threshold
    # that moves: the same pass had peaks that differed by 80 MB.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(64 * 1024)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def device() -> torch.device:
    """Where benchmarks run."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _seconds(run: Callable[[], object]) -> float:
    # Processor time does not count the time of others; a GPU has no such clock.
    on_gpu = torch.cuda.is_available()
    clock = time.perf_counter if on_gpu else time.process_time
    started = clock()
    run()
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - started


def _give_back() -> None:
    """Return freed memory to the system, or its reuse would hide what is needed."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _peak() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        found = next(line for line in lines if line.startswith("VmHWM"))
        return float(found.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
