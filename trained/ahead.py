"""Data of the next step, drawn while a device is still at work on this one.

Every step's data follow from its number, so when they are drawn changes nothing.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from .arm import Data
from .ensemble import pinned

Draw = Callable[[int], Data]
"""The data of a step, on the CPU."""


@contextmanager
def ahead(draw: Draw, end: int, device: str) -> Iterator[Draw]:
    """What draws like `draw`, but in a thread and before it is asked.

    Args:
        draw: the data of a step.
        end: the first step that is not drawn ahead.
        device: where the data go; on the CPU itself nothing is gained, so `draw`.
    """
    kind = torch.device(device).type
    if kind == "cpu":
        yield draw
        return

    def drawn(step: int) -> Data:
        # Only from such memory does a copy not wait.
        return pinned(draw(step)) if kind == "cuda" else draw(step)

    begun: dict[int, Future[Data]] = {}
    with ThreadPoolExecutor(1) as thread:

        def at(step: int) -> Data:
            found = begun.pop(step, None) or thread.submit(drawn, step)
            if step + 1 < end:
                begun[step + 1] = thread.submit(drawn, step + 1)
            return found.result()

        yield at
