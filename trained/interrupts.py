"""Ctrl-C leaves no hook and no half-loaded module behind, whenever it comes.

Python raises KeyboardInterrupt between any two instructions: also after a hook was
registered and before its handle is kept, or on the way into the code that removes it.
No `try` can help there. So while hooks are held, an interrupt that arrives inside the
code that adds or removes them is sent again a moment later, when that is done. So is
one that arrives while a module is loaded: torch, loading, ends the process if Python
raises inside its registrations.
"""

import contextlib
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import Any, Protocol

PAUSE = 0.002
"""Seconds after which a postponed interrupt is sent again."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_before: dict[int, Callable[[int, FrameType | None], Any]] = {}
_holders = 0


class Removable(Protocol):
    """What `attach` of a backend and torch's `register_...` give."""

    def remove(self) -> None:
        """End it."""


class Holding(ExitStack):
    """A stack of hooks that are removed at the end of the block, interrupted or not."""

    def __enter__(self) -> "Holding":
        _begin()
        super().__enter__()
        return self

    def add(self, attach: Callable[..., Removable], *args: Any, **options: Any) -> None:
        """Call what attaches a hook, and keep what it returns until the end."""
        self.callback(attach(*args, **options).remove)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            return bool(super().__exit__(kind, error, trace))
        finally:
            _end()


def _begin() -> None:
    """Postpone interrupts from now on, where that is needed."""
    global _holders
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _SIGNALS if _holders == 0 else ():
        found = signal.getsignal(number)
        # What is not a function of Python interrupts no Python.
        if callable(found) and found is not _postpone:
            _before[number] = found
            signal.signal(number, _postpone)
    _holders += 1


def _end() -> None:
    """Undo the `_begin` that belongs to it; the last one lets interrupts through."""
    global _holders
    if threading.current_thread() is not threading.main_thread():
        return
    _holders -= 1
    for number in _SIGNALS if _holders == 0 else ():
        if signal.getsignal(number) is _postpone:
            signal.signal(number, _before[number])


def _postpone(number: int, frame: FrameType | None) -> None:
    if _is_critical(frame):
        again = threading.Timer(PAUSE, signal.raise_signal, (number,))
        again.daemon = True
        again.start()
    else:
        _before[number](number, frame)


def _is_critical(frame: FrameType | None) -> bool:
    """Whether code of this file or an import is at work, or a context manager is."""
    if frame is not None and frame.f_code.co_filename == contextlib.__file__:
        return True
    while frame is not None:
        if frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
            return True
        frame = frame.f_back
    return False
