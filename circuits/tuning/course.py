"""The course of a fine-tuning: phases, batches, what is seen on the way, and its state.

Killed and taken up again, it ends with the same bits: rows are drawn from (seed, phase,
epoch), and the state on disk has all that the next step depends on.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from circuits.progress import Step, step
from trained.errors import Incomplete
from trained.seeding import generator
from trained.state import StateFiles, below

from .optimiser import LeanAdamW
from .settings import Tuning

SAVE_SECONDS = 60.0
"""Work that is lost at most when it is killed; more where saving itself takes long."""
SAVE_COST = 20.0
"""Saving happens so many times as rarely as it takes long."""

Loss = Callable[[Tensor], tuple[Tensor, int]]
"""Numbers of rows -> the sum of their losses, and of how many."""

Seen = dict[str, float]


class Phase(NamedTuple):
    """A stretch of training on some rows."""

    name: str
    n_rows: int
    steps: int
    loss: Loss


def nothing(_index: int) -> Seen:
    """What is seen where nobody looks."""
    return {}


@dataclass
class Course:
    """Trains parameters in place.

    Attributes:
        name: for people, and for the order of rows.
        parameters: what is trained.
        tuning: how.
        seed: of the order of rows.
        folder: where its state is kept; None: it is not.
        after: phase -> what is measured at its end.
        watch: step of a phase -> what is measured every so many steps.
        watch_every: that many.
    """

    name: str
    parameters: Mapping[str, nn.Parameter]
    tuning: Tuning
    seed: int
    folder: Path | None = None
    after: Callable[[int], Seen] = nothing
    watch: Callable[[int], Seen] = nothing
    watch_every: int = 0
    found: Seen = field(default_factory=dict)
    """What was seen at the ends of phases."""
    watched: list[Seen] = field(default_factory=list)
    """What was seen on the way."""
    seconds: float = 0.0
    """Of all steps, interruptions left out."""
    _index: int = 0
    _step: int = 0

    def run(self, phases: list[Phase]) -> None:
        """Train through all phases, or what is left of them."""
        self._saved = time.monotonic()
        self._cost = 0.0
        self._files = StateFiles(self.folder) if self.folder else None
        state = self._load()
        while self._index < len(phases):
            phase = phases[self._index]
            optimiser = self._optimiser()
            if state is not None:
                optimiser.load(below("optimiser/", state), self._step)
                state = None
            with step(f"{self.name}, {phase.name}: step", phase.steps) as taken:
                self._run(phase, optimiser, taken)
            self.found |= self.after(self._index)
            self._index, self._step = self._index + 1, 0

    def _optimiser(self) -> LeanAdamW:
        tuning = self.tuning
        return LeanAdamW(
            self.parameters,
            lr=tuning.lr,
            weight_decay=tuning.weight_decay,
            seed=self.seed,
        )

    def _run(self, phase: Phase, optimiser: LeanAdamW, taken: Step) -> None:
        while self._step < phase.steps:
            taken(self._step)
            started = time.monotonic()
            self._take(phase, optimiser)
            self._step += 1
            if self.watch_every and (
                self._step % self.watch_every == 0 or self._step == phase.steps
            ):
                self.watched.append(self.watch(self._step))
            self.seconds += time.monotonic() - started
            self._save_when_due(optimiser)

    def _take(self, phase: Phase, optimiser: LeanAdamW) -> None:
        rows, losses, count = self._rows(phase), [], 0
        for part in rows.tensor_split(min(self.tuning.accumulate, len(rows))):
            loss, several = phase.loss(part)
            torch.autograd.backward(loss)
            losses.append(loss.detach())
            count += several
        if not torch.stack(losses).isfinite().all():
            raise Incomplete(
                f"{self.name}: its loss is not finite at step {self._step} of "
                f"{phase.name}; lower the learning rate"
            )
        optimiser.step(1 / count, self.tuning.clip)

    def _rows(self, phase: Phase) -> Tensor:
        size = min(self.tuning.batch_size, phase.n_rows)
        epoch, place = divmod(self._step, -(-phase.n_rows // size))
        source = generator(self.seed, self.name, phase.name, "epoch", epoch)
        order = torch.randperm(phase.n_rows, generator=source)
        return order[place * size : (place + 1) * size]

    def _save_when_due(self, optimiser: LeanAdamW) -> None:
        pause = max(SAVE_SECONDS, SAVE_COST * self._cost)
        if self._files is not None and time.monotonic() - self._saved >= pause:
            self._save(self._files, optimiser)

    def _save(self, files: StateFiles, optimiser: LeanAdamW) -> None:
        """Store all that the next step depends on."""
        started = time.monotonic()
        tensors = {f"model/{k}": p.detach() for k, p in self.parameters.items()}
        tensors |= {f"optimiser/{k}": t for k, t in optimiser.tensors().items()}
        place: dict[str, Any] = {
            "stage": self._index,
            "step": self._step,
            "found": self.found,
            "watched": self.watched,
            "seconds": self.seconds,
        }
        files.write(tensors, place)
        self._saved = time.monotonic()
        self._cost = self._saved - started

    def _load(self) -> dict[str, Tensor] | None:
        """Go back to the stored state, if there is one, and give it."""
        stored = self._files.read() if self._files else None
        if stored is None:
            return None
        state, place = stored
        self._index, self._step = place["stage"], place["step"]
        self.found, self.watched = dict(place["found"]), list(place["watched"])
        self.seconds = place["seconds"]
        with torch.no_grad():
            for name, tensor in below("model/", state).items():
                self.parameters[name].copy_(tensor)
        return state
