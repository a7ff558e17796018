"""The allocator keeps what a process freed: the next step does not ask again."""

import resource
import subprocess
import sys

STEPS = """
import resource
import torch
from trained.memory import keep_freed_memory

{call}
def step():
    [torch.ones(10_000_000) for _ in range(2)]

for _ in range(60):  # until the pieces of the heap fit
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

PAGES_OF_A_STEP = 80_000_000 // resource.getpagesize()


def _faults(call: str) -> int:
    command = [sys.executable, "-c", STEPS.format(call=call)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_freed_memory_is_used_again() -> None:
    assert _faults("keep_freed_memory()") < PAGES_OF_A_STEP


def test_without_it_every_step_asks_the_system_again() -> None:
    assert _faults("") > 5 * PAGES_OF_A_STEP
