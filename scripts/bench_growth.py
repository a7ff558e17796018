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

    @property
    def size(self) -> Size:
        """Of the model."""
        return Size(self.layers, n_heads=6, d_model=384, d_vocab=8_000)

    def grown(self, axis: str) -> "Work":
        """The same with one axis four times as large."""
        return replace(self, **{axis: TIMES * getattr(self, axis)})


WORKS = {
    axis: Work(batch=1) if axis == "length" else Work()
    for axis in ("length", "layers", "batch")
}


def variants(work: Work, model: LanguageModel) -> dict[str, "partial[object]"]:
    """`measure` and the forward pass."""
    batch = prompts(work.size, work.batch, work.length)
    return {
        MEASURE: partial(measure, model, [batch], signals(model.readout)),
        FLOOR: partial(forward(model.module, logits_to_keep=1), batch),
    }


def peak(axis: str, name: str, *, large: bool) -> float:
    """Megabytes, in a process of its own."""
    size = "large" if large else "small"
    return in_own_process("scripts.bench_growth", [axis, name, size])


@torch.no_grad()
def lines(rounds: int = 5) -> Iterator[Line]:
    """Every line of the table."""
    torch.set_num_threads(1)
    worst = 0.0
    for axis, work in WORKS.items():
        small, large = (
            variants(own, opened(own.size)) for own in (work, work.grown(axis))
        )
        runs = {
            (size, name): run
            for size, both in (("small", small), ("large", large))
            for name, run in both.items()
        }
        timed = interleaved({" ".join(key): run for key, run in runs.items()}, rounds)
        growth = {n: ratio(timed, f"large {n}", f"small {n}") for n in (MEASURE, FLOOR)}
        for name, value in growth.items():
            yield Line(f"{axis} x {TIMES}, {name}: time x", value)
        worst = max(worst, growth[MEASURE] / growth[FLOOR])
        for name in growth:
            sizes = [peak(axis, name, large=grown) for grown in (False, True)]
            yield Line(f"{axis} x {TIMES}, {name}: peak MB, small", sizes[0])
            yield Line(f"{axis} x {TIMES}, {name}: peak MB, large", sizes[1])
    key = "growth.measure_over_forward"
    yield Line("worst growth of measure / of forward, time", worst, key, "<= 1.1")
    yield from _cells(rounds)
    yield from _seeds(rounds)


def _cells(rounds: int) -> Iterator[Line]:
    work = Work(layers=8)
    model, (clean, corrupt) = opened(work.size), pair(work.size)

    def sweep(layers: range) -> object:
        grid = position_grid("resid_pre", layers, range(clean.tokens.shape[1]))
        return patch_sweep(model, clean, corrupt, grid, Reading(metric()))

    # The middle layers of all, so that an average cell has as many blocks to pass.
    few, many = range(3, 5), range(8)
    runs = {"few": partial(sweep, few), "many": partial(sweep, many)}
    value = ratio(interleaved(runs, rounds), "many", "few")
    key = "growth.cells"
    yield Line(f"cells x {TIMES}, patching sweep: time x", value, key, f"<= {TIMES}")


def _seeds(rounds: int) -> Iterator[Line]:
    arm = decoder_arm(16, 16)
    runs = {n: partial(trained, arm, n, "auto") for n in (2, 2 * TIMES)}
    timed = interleaved({str(n): run for n, run in runs.items()}, rounds)
    value = ratio(timed, str(2 * TIMES), "2")
    key = "growth.seeds"
    yield Line(f"seeds x {TIMES}, training: time x", value, key, f"<= {TIMES}")


def print_peak(axis: str, name: str, size: str) -> None:
    """Run one variant once and print the growth of the peak."""
    torch.set_num_threads(1)
    work = WORKS[axis].grown(axis) if size == "large" else WORKS[axis]
    model = opened(work.size)
    with torch.no_grad():
        variants(replace(work, length=16), model)[name]()
        print(peak_growth(variants(work, model)[name]))


if __name__ == "__main__":
    print_peak(*sys.argv[1:])
