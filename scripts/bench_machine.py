"""What this machine does in a second, by which seconds of two machines compare.

python -m scripts.bench machine

Two machines of two idle cores may differ by a factor of two in `make demo`.
"""

import time
from collections.abc import Callable, Iterator

import torch

from .bench_timing import Line, device

SIZE = 512
ROUNDS = 5


def lines() -> Iterator[Line]:
    """The best of some rounds, on one thread: what the others take is not its own."""
    torch.set_num_threads(1)
    large = torch.randn(SIZE, SIZE, device=device())
    small = torch.randn(8, 8, device=device())
    product = best(lambda: large @ large, 50)
    speed = 2 * SIZE**3 / product / 1e9
    yield Line(f"a product of {SIZE} x {SIZE}, GFLOP/s", speed, "machine.gflops")
    call = 1e6 * best(lambda: small + small, 20_000)
    yield Line("a call into torch, microseconds", call, "machine.call_us")
    counted = 1e3 * best(lambda: sum(range(100_000)), 20)
    yield Line("a hundred thousand sums in Python, ms", counted, "machine.python_ms")


def best(work: Callable[[], object], times: int) -> float:
    """Least seconds of one piece of work, over rounds of many."""
    return min(_seconds(work, times) for _ in range(ROUNDS))


def _seconds(work: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / times
