"""Ctrl-C at any moment while hooks are held: none is left, nothing else is raised.

    python -m tests.faults.interrupts 200

A process of its own, since a test runner's wrappers around our functions would be hit
instead of them.
"""

import os
import random
import subprocess
import sys

import torch
from torch import nn

from circuits.backends import hooked
from circuits.hooks import Signal, intervene, measure, record
from trained.decoder import Decoder, DecoderConfig
from trained.task import Batch

from . import processes
from .tally import Row

KILLER = """
import os, signal, sys, time
for line in sys.stdin:
    time.sleep(float(line))
    os.kill(int(sys.argv[1]), signal.SIGINT)
"""


def interrupted_hooks(tries: int) -> Row:
    """So many interrupts, in a process of their own."""
    row = Row("Ctrl-C while hooks are held")
    found = processes.run([sys.executable, "-m", __name__, str(tries)])
    fine = found.code == 0 and found.said.strip() == "ok"
    row.add(found.said, [] if fine else [found.said])
    row.tries = tries
    return row


def n_hooks(model: nn.Module) -> int:
    """How many hooks a model holds."""
    both = ("_forward_hooks", "_forward_pre_hooks")
    return sum(len(getattr(m, name)) for m in model.modules() for name in both)


def work(model: Decoder, batch: Batch) -> None:
    """Record, intervene and measure."""
    sites = hooked.sites(model)
    mass = Signal("pattern", lambda pattern, _batch: pattern.mean((1, 2, 3)))
    with record(model, sites), intervene(model, {sites[0]: torch.abs}):
        model(batch.tokens)
    measure(model, [batch], {"mass": mass})


def main(tries: int) -> str:
    """What went wrong first, or "ok"."""
    torch.set_num_threads(1)
    sizes = DecoderConfig(d_vocab=9, d_model=8, n_layers=2, n_heads=2, n_ctx=6)
    model = Decoder(sizes, generator=torch.Generator().manual_seed(0))
    tokens = torch.zeros(2, 4, dtype=torch.long)
    batch, source = Batch(tokens=tokens, targets=tokens[:, -1]), random.Random(0)
    command = [sys.executable, "-c", KILLER, str(os.getpid())]
    killer = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert killer.stdin is not None
    # As a notebook does, keep the last traceback and with it all that it refers to.
    kept: list[BaseException] = []
    for _ in range(tries):
        try:
            killer.stdin.write(f"{source.uniform(0.001, 0.02)}\n")
            killer.stdin.flush()
            while True:
                work(model, batch)
        except KeyboardInterrupt as error:
            kept = [error]
        if n_hooks(model):
            return f"{n_hooks(model)} hooks are left"
    killer.stdin.close()
    killer.wait()
    return "ok" if kept else "nothing was interrupted"


if __name__ == "__main__":
    sys.stdout.write(main(int(sys.argv[1])) + "\n")
