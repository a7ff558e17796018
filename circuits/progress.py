"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from torch import Tensor

from trained.arm import Arm
from trained.trainer import Observer

QUIET_SECONDS = 5.0
"""Without a terminal, at most one line in this time."""


class TrainingProgress(Observer, AbstractContextManager["TrainingProgress"]):
    """Shows which arm is trained and how far; used as a context manager."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said = time.monotonic()
        self._taken, self._total = 0, 0
        if console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=console, transient=True)

    def __enter__(self) -> "TrainingProgress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def on_arm(self, arm: Arm, seeds: Sequence[int]) -> None:
        """Open a bar for the arm."""
        self._taken, self._total = 0, arm.steps
        text = f"{self._title}: training {arm.name} ({len(seeds)} seeds)"
        if self._bar:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(text, total=arm.steps)
        elif time.monotonic() - self._said >= QUIET_SECONDS:
            self._say(text)

    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:
        """Move the bar, or say a line now and then."""
        if self._bar and self._task is not None:
            if step % 20 == 0:
                self._bar.update(self._task, completed=step)
        elif time.monotonic() - self._said >= QUIET_SECONDS:
            loss = float(losses.mean())
            self._say(
                f"{self._title}: {arm.name} step {step} of {arm.steps}, loss {loss:.4g}"
            )

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        self._console.print(text, highlight=False)
