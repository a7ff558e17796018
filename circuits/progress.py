"""What takes long says so: what it does, how far it is and how long is left.

    for claim in each("recall: judging", claims): ...
    with step("opening smollm2"): ...

On a terminal it is one line, rewritten in place and gone when the work is done;
elsewhere a plain line after two seconds and then every half minute. Steps within steps
share the line, the outermost first. A worker process says nothing: its parent does.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import parent_process
from typing import Protocol, TypeVar, runtime_checkable

from trained.text import printable

PATIENCE = 2.0
"""Seconds that a step may take without a word."""

PAUSE = 30.0
"""Seconds between two lines where there is no terminal."""

REFRESH = 1.0
"""Seconds between two looks at what is under way."""

ERASE = "\r\x1b[2K"

Number = int | float
Clock = Callable[[], float]
Item = TypeVar("Item")
Poll = Callable[[], tuple[Number, str]]
"""How much is done, and that in words."""


@runtime_checkable
class Stream(Protocol):
    """What can be written to."""

    def write(self, text: str, /) -> object:
        """Put a text there."""

    def flush(self) -> object:
        """Let it be seen."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""


class Step:
    """Something that takes a while; called with how much of it is done.

    Args:
        title: what is done.
        total: how much there is to do; None: nothing tells how long it takes.
        poll: is asked how much is done, where nobody calls.
        clock: seconds.
    """

    def __init__(
        self, title: str, total: Number | None, poll: Poll | None, clock: Clock
    ) -> None:
        self._title, self._total, self._poll, self._clock = title, total, poll, clock
        self.begun, self.said = clock(), False
        self._done: Number = 0
        self._note = ""
        self._first: tuple[Number, float] | None = None
        self._last = self.begun

    def __call__(self, done: Number, note: str = "") -> None:
        """Take in how much is done, and what to call that (default: "3 of 7")."""
        self._done, self._note, self._last = done, note, self._clock()
        # What was there before, from work that goes on where it stopped, took no time.
        self._first = self._first or (done, self._last)

    def look(self) -> None:
        """See what the poll finds."""
        if self._poll is not None:
            done, note = self._poll()
            if self._first is None or (done, note) != (self._done, self._note):
                self(done, note)

    @property
    def counts(self) -> bool:
        """Whether it knows how much there is to do."""
        return self._total is not None

    def text(self) -> str:
        """What it does and how far it is."""
        counted = f"{self._done:g} of {self._total:g}" if self._total else ""
        return " ".join(filter(None, (self._title, self._note or counted)))

    def left(self, now: Number) -> float | None:
        """Seconds to go at the pace so far; None: nothing tells.

        What is left times (seconds from the first to the last report) / (what was done
        between them), minus the seconds since; where these are more, the pace was
        another (as of parts that were there already) and tells nothing.
        """
        if not self._total or self._first is None or self._done <= self._first[0]:
            return None
        pace = (self._last - self._first[1]) / (self._done - self._first[0])
        seconds = (self._total - self._done) * pace - (now - self._last)
        return seconds if seconds >= 0 else None


class Line:
    """The line that all steps under way share.

    Args:
        stream: where it is shown; None: standard error, whatever that is then.
        clock: seconds.
        refresh: seconds between two ticks; 0: whoever made it calls `tick`.
    """

    def __init__(
        self,
        stream: Stream | None = None,
        clock: Clock = time.monotonic,
        refresh: Number = REFRESH,
    ) -> None:
        self._stream, self._clock, self._refresh = stream, clock, refresh
        self._steps: list[Step] = []
        self._shown, self._said = "", float("-inf")
        self._lock, self._stop = threading.RLock(), threading.Event()

    @contextmanager
    def step(
        self, title: str, total: Number | None = None, poll: Poll | None = None
    ) -> Iterator[Step]:
        """Say what is done in the block, if it takes longer than `PATIENCE`."""
        begun = Step(title, total, poll, self._clock)
        with self._lock:
            self._steps.append(begun)
            if self._refresh and len(self._steps) == 1:
                self._stop = threading.Event()
                threading.Thread(
                    target=self._tick_until, args=(self._stop,), daemon=True
                ).start()
        try:
            yield begun
        finally:
            with self._lock:
                self._erase()
                self._steps.remove(begun)
                if not self._steps:
                    self._stop.set()

    def _tick_until(self, stop: threading.Event) -> None:
        while not stop.wait(self._refresh):
            self.tick()

    def tick(self) -> None:
        """Show what is under way, where that is due."""
        with self._lock:
            for step in self._steps:
                step.look()
            now = self._clock()
            due = [step for step in self._steps if now - step.begun >= PATIENCE]
            if not due:
                return
            if self._on_terminal:
                self._rewrite(now)
            elif now - self._said >= PAUSE or not all(step.said for step in due):
                self._said = now
                self._write(f"{self._doing()}, {self._time(now)}\n")
            for step in due:
                step.said = True

    def print(self, text: str, stream: Stream) -> None:
        """Print a line that stays, on any stream, in the place of the one shown."""
        with self.aside():
            print(text, file=stream, flush=True)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the place to what somebody else prints in the block."""
        with self._lock:
            self._erase()
            yield

    def _doing(self) -> str:
        """What the innermost step does, and those around it that count."""
        *around, last = self._steps
        shown = [*(step for step in around if step.counts), last]
        return " · ".join(printable(step.text()) for step in shown)

    def _time(self, now: Number) -> str:
        """The time left of the outermost step that can tell."""
        known = (step.left(now) for step in self._steps)
        left = next((seconds for seconds in known if seconds is not None), None)
        if left is None:
            return f"{duration(now - self._steps[0].begun)} so far"
        return f"about {duration(left)} left"

    def _rewrite(self, now: Number) -> None:
        doing, when = self._doing(), f", {self._time(now)}"
        room = shutil.get_terminal_size().columns - 1 - len(when)
        line = (doing if len(doing) <= room else f"{doing[: room - 1]}…") + when
        if line != self._shown:
            self._write(f"{ERASE}{line}")
            self._shown = line

    def _erase(self) -> None:
        if self._shown:
            self._write(ERASE)
            self._shown = ""

    @property
    def _on_terminal(self) -> bool:
        stream = self._stream or sys.stderr
        # Nobody may be listening, and the work goes on all the same.
        with suppress(OSError, ValueError):
            moves = os.environ.get("TERM") != "dumb"
            return stream is not None and stream.isatty() and moves
        return False

    def _write(self, text: str) -> None:
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.write(text)
                stream.flush()


_LINE = Line()


@contextmanager
def step(
    title: str, total: Number | None = None, poll: Poll | None = None
) -> Iterator[Step]:
    """Say what is done in the block, if it takes long.

    Args:
        title: what is done, such as "recall: drawing".
        total: how much there is to do; None: nothing tells how long it takes.
        poll: is asked how much is done, on another thread, where nobody else can say.

    Yields:
        What is called with how much is done.
    """
    if parent_process() is not None:
        yield Step(title, total, None, time.monotonic)
        return
    with _LINE.step(title, total, poll) as begun:
        yield begun


def each(
    title: str, items: Sequence[Item], name: Callable[[Item], str] | None = None
) -> Iterator[Item]:
    """The items, one after the other, saying how many are done if that takes long."""
    with step(title, len(items)) as done:
        for number, item in enumerate(items):
            known = f"{name(item)}, " if name else ""
            done(number, f"{known}{number + 1} of {len(items)}")
            yield item


def say(text: str, *, out: bool = False) -> None:
    """Print a line that stays, on standard error or output, whatever is under way."""
    _LINE.print(text, sys.stdout if out else sys.stderr)


def aside() -> AbstractContextManager[None]:
    """Let what is printed in the block stand where the line was shown."""
    return _LINE.aside()


def duration(seconds: Number) -> str:
    """A time in the unit that fits.

    >>> duration(8.2), duration(600), duration(7200)
    ('8 s', '10 min', '2.0 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
