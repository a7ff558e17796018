"""Reduced signals by `measure`, against TransformerLens' `run_with_cache` by hand.

    python -m scripts.bench_measure

Both compute, for eight batches, every head's attention mass on the first position and
the cosine of every layer's residual with one direction. Prints time over a plain
forward pass and the growth of the process's peak memory, each variant in a process of
its own.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from circuits.hooks import Signal, measure
from circuits.sites import Site, hooked_name
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator
from trained.task import Batch

N_LAYERS, WIDTH, LENGTH, ROWS, BATCHES = 6, 256, 256, 8, 8
CONFIG = DecoderConfig(
    d_vocab=512, d_model=WIDTH, n_layers=N_LAYERS, n_heads=8, n_ctx=LENGTH
)


def mass_on_first(pattern: Tensor, _batch: Batch) -> Tensor:
    """Mean attention to position 0, head by head."""
    return pattern[..., 0].mean(-1)


def along(direction: Tensor) -> Callable[[Tensor, Batch], Tensor]:
    """Mean cosine of the residual with a direction."""

    def signal(residual: Tensor, _batch: Batch) -> Tensor:
        return torch.cosine_similarity(residual, direction, dim=-1).mean(1)

    return signal


def plain(model: Decoder, batches: list[Batch], _direction: Tensor) -> None:
    """Forward passes alone."""
    for batch in batches:
        model(batch.tokens)


def by_measure(model: Decoder, batches: list[Batch], direction: Tensor) -> None:
    """Signals reduced inside the hooks."""
    signals = {
        "mass": Signal("pattern", mass_on_first, ("head",)),
        "cosine": Signal("resid_post", along(direction)),
    }
    measure(model, batches, signals)


def by_cache(model: Decoder, batches: list[Batch], direction: Tensor) -> None:
    """Signals computed from a cache of everything, batch by batch."""
    sums: list[Tensor] = []
    for batch in batches:
        _, cache = model.run_with_cache(batch.tokens)
        for layer in range(N_LAYERS):
            pattern = cache[hooked_name(Site("pattern", layer))]
            residual = cache[hooked_name(Site("resid_post", layer))]
            sums.append(mass_on_first(pattern, batch).mean(0))
            sums.append(along(direction)(residual, batch).mean(0, keepdim=True))


VARIANTS = {"plain forward": plain, "measure": by_measure, "run_with_cache": by_cache}


@torch.no_grad()
def run(name: str) -> None:
    """Time one variant in this process and print seconds and megabytes."""
    torch.set_num_threads(1)
    source = generator(0, "bench")
    model = Decoder(CONFIG, generator=source).eval()
    tokens = torch.randint(512, (BATCHES, ROWS, LENGTH), generator=source)
    batches = [Batch(rows, rows[:, 0]) for rows in tokens]
    direction = torch.randn(WIDTH, generator=source)
    plain(model, batches[:1], direction)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    VARIANTS[name](model, batches, direction)
    seconds = time.process_time() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(seconds, grown)


def main() -> None:
    """Run every variant and print it relative to the plain forward pass."""
    if len(sys.argv) > 1:
        run(sys.argv[1])
        return
    base = 0.0
    for name in VARIANTS:
        command = [sys.executable, "-m", "scripts.bench_measure", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, grown = map(float, done.stdout.split())
        base = base or seconds
        print(f"{name}: {seconds / base:.2f}x the time, {grown:.0f} MB more memory")


if __name__ == "__main__":
    main()
