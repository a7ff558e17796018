"""How many threads a block of work may use."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use this many threads inside the block.

    Small matrices gain nothing from a second thread, and on a busy machine the two
    wait for each other: seconds can become minutes.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
