"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from torch import Tensor

from trained.arm import Arm
from trained.errors import in_a_line
from trained.trainer import Observer

QUIET_SECONDS = 5.0
"""Without a terminal, at most one line in this time."""


class TrainingProgress(Observer, AbstractContextManager["TrainingProgress"]):
    """Shows how many arms are trained and how far the current one is."""

    def __init__(self, console: Console, title: str, n_arms: int) -> None:
        self._console, self._title, self._n_arms = console, title, n_arms
        self._done = 0
        self._said = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task(f"{title}: training", total=n_arms)

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def on_arm(self, arm: Arm, seeds: Sequence[int]) -> None:
        """Name the arm that starts."""
        self._bar.update(
            self._task,
            description=f"{self._title}: training {arm.name} ({len(seeds)} seeds)",
        )

    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:
        """Say where a long arm is, now and then."""
        if time.monotonic() - self._said >= QUIET_SECONDS:
            loss = float(losses.mean())
            self._say(f"{arm.name}: step {step} of {arm.steps}, loss {loss:.4g}")

    def on_finish(self, arm: Arm, seconds: float) -> None:
        """Count an arm that is done."""
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        self._say(
            f"{self._done} of {self._n_arms} trained: {arm.name}, {seconds:.1f} s"
        )

    def on_failure(self, arm: Arm, error: Exception) -> None:
        """Say at once what the end will say again."""
        self._say(f"{arm.name} failed: {in_a_line(error)}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        if not self._console.is_terminal:
            line = f"{self._title}: {text}"
            self._console.print(line, highlight=False, markup=False)
