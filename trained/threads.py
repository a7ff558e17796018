"""How a block of work computes: on how many threads, and with what as zero."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use this many threads inside the block, and take denormal numbers as zero.

    Small matrices gain nothing from a second thread, and on a busy machine the two
    wait for each other: seconds can become minutes. Numbers below 1e-38 (1e-308 in
    double precision) decide nothing, but take a CPU far longer: two arms of `symbols`
    trained 4 and 15 times as long for them.
    """
    before, flushed = torch.get_num_threads(), flushes_denormals()
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(flushed)


def flushes_denormals() -> bool:
    """Whether the processor takes denormal results as zero; torch cannot be asked."""
    least = torch.finfo(torch.float64).tiny
    return not torch.tensor(least, dtype=torch.float64).div(2).item()
