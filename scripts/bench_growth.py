"""How time and memory grow with length, layers, batch, seeds and cells.

    python -m scripts.bench growth

Each is made four times as large. What `measure` then needs is held against what a
forward pass with the last position's logits needs; cells and seeds, which have no such
pass, against four times as much. Peaks are those of a process of its own.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from circuits.hooks import measure
from circuits.interventions.part import position_grid
from circuits.interventions.patching import patch_sweep
from circuits.interventions.sweep import Reading
from circuits.models.language_model import LanguageModel

from .bench_extraction import forward, signals
from .bench_model import Size, opened, prompts
from .bench_patching import metric, pair
from .bench_seeds import decoder_arm, trained
from .bench_timing import Line, in_own_process, interleaved, peak_growth, ratio

TIMES = 4
MEASURE, FLOOR = "measure", "forward"


@dataclass(frozen=True)
class Work:
    """A model and prompts for it; smaller than GPT-2, so that growth can be seen."""

    length: int = 256
    layers: int = 3
    batch: int = 2
    width: int = 384

    @property
    def size(self) -> Size:
        """Of the model."""
        return Size(self.layers, n_heads=6, d_model=self.width, d_vocab=8_000)

    def grown(self, axis: str) -> "Work":
        """The same with one axis four times as large."""
        return replace(self, **{axis: TIMES * getattr(self, axis)})


WORKS = {
    axis: Work(batch=1) if axis == "length" else Work()
    for axis in ("length", "layers", "batch")
}
SWEPT = Work(layers=8)


def variants(work: Work, model: LanguageModel) -> dict[str, "partial[object]"]:
    """`measure` and the forward pass."""
    batch = prompts(work.size, work.batch, work.length)
    return {
        MEASURE: partial(measure, model, [batch], signals(model.readout)),
        FLOOR: partial(forward(model.module, logits_to_keep=1), batch),
    }


def cells() -> dict[str, "partial[object]"]:
    """A patching sweep over some layers, and over four times as many."""
    model, (clean, corrupt) = opened(SWEPT.size), pair(SWEPT.size)

    def sweep(layers: range) -> object:
        grid = position_grid("resid_pre", layers, range(clean.tokens.shape[1]))
        return patch_sweep(model, clean, corrupt, grid, Reading(metric()))

    # The middle layers of all, so that an average cell has as many blocks to pass.
    return {"small": partial(sweep, range(3, 5)), "large": partial(sweep, range(8))}


def seeds() -> dict[str, "partial[object]"]:
    """The training of two seeds, and of four times as many."""
    counts = {"small": 2, "large": 2 * TIMES}
    arm = decoder_arm(16, 16)
    return {size: partial(trained, arm, n, "auto") for size, n in counts.items()}


ALONE = {"cells": cells, "seeds": seeds}


def peaks(axis: str, name: str) -> Iterator[Line]:
    """Megabytes of both sizes, each in a process of its own."""
    for size in ("small", "large"):
        megabytes = peak(axis, name, size)
        yield Line(f"{axis} x {TIMES}, {name}: peak MB, {size}", megabytes)


def peak(axis: str, name: str, size: str) -> float:
    """Megabytes, in a process of its own."""
    return in_own_process("scripts.bench_growth", [axis, name, size])


@torch.no_grad()
def lines(rounds: int = 5) -> Iterator[Line]:
    """Every line of the table."""
    torch.set_num_threads(1)
    yield from _passes(rounds)
    for axis, runs in ALONE.items():
        with torch.enable_grad():
            value = ratio(interleaved(runs(), rounds), "large", "small")
        yield Line(f"{axis} x {TIMES}: time x", value, f"growth.{axis}", f"<= {TIMES}")
        yield from peaks(axis, axis)


def _passes(rounds: int) -> Iterator[Line]:
    worst_time = worst_memory = 0.0
    for axis, work in WORKS.items():
        sizes = {"small": work, "large": work.grown(axis)}
        runs = {
            f"{size} {name}": run
            for size, own in sizes.items()
            for name, run in variants(own, opened(own.size)).items()
        }
        timed = interleaved(runs, rounds)
        growth = {n: ratio(timed, f"large {n}", f"small {n}") for n in (MEASURE, FLOOR)}
        large: dict[str, float] = {}
        for name, value in growth.items():
            yield Line(f"{axis} x {TIMES}, {name}: time x", value)
            for line in peaks(axis, name):
                yield line
                large[name] = line.value
        worst_time = max(worst_time, growth[MEASURE] / growth[FLOOR])
        worst_memory = max(worst_memory, large[MEASURE] / large[FLOOR])
    key = "growth.measure_over_forward"
    yield Line("worst growth of measure / of forward, time", worst_time, key, "<= 1.1")
    # One pattern of the long prompt, kept, would make it 1.7.
    key = "growth.memory_over_forward"
    yield Line("worst peak of measure / of forward", worst_memory, key, "<= 1.1")


def print_peak(axis: str, name: str, size: str) -> None:
    """Run one variant once and print the growth of the peak."""
    torch.set_num_threads(1)
    if axis in ALONE:
        runs = ALONE[axis]()
        runs["small"]()
        print(peak_growth(runs[size]))
        return
    work = WORKS[axis].grown(axis) if size == "large" else WORKS[axis]
    model = opened(work.size)
    with torch.no_grad():
        variants(replace(work, length=16), model)[name]()
        print(peak_growth(variants(work, model)[name]))


if __name__ == "__main__":
    print_peak(*sys.argv[1:])
