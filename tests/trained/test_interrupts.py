"""An interrupt inside the code that adds or removes a hook waits until that is done."""

import contextlib
import importlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from trained.interrupts import Holding


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def come_through() -> None:
    """Give what was postponed the time to arrive."""
    for _ in range(2000):
        time.sleep(0.001)


class Hooks:
    """Counts hooks, and is interrupted where no `try` of its user can be."""

    def __init__(self, *, adding: bool = False, removing: bool = False) -> None:
        self.count, self.adding, self.removing = 0, adding, removing

    def attach(self) -> SimpleNamespace:
        self.count += 1
        if self.adding:
            interrupt()
        return SimpleNamespace(remove=self.remove)

    def remove(self) -> None:
        if self.removing:
            interrupt()
        self.count -= 1


def hold(
    hooks: Hooks, inside: Callable[[], object], after: Callable[[], object]
) -> None:
    with Holding() as held:
        held.add(hooks.attach)
        assert hooks.count == 1
        inside()
    after()


@pytest.mark.parametrize("place", ["adding", "removing"])
def test_a_hook_is_added_and_removed_whole(place: str) -> None:
    hooks, before = Hooks(**{place: True}), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        hold(hooks, list, come_through)
    assert hooks.count == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_in_the_block_comes_at_once() -> None:
    hooks = Hooks()

    def disturbed() -> None:
        interrupt()
        pytest.fail("went on")

    with pytest.raises(KeyboardInterrupt):
        hold(hooks, disturbed, list)
    assert hooks.count == 0


def test_a_module_is_loaded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import signal\nsignal.raise_signal(signal.SIGINT)\nwhole = True\n"
    (tmp_path / "interrupted.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def load() -> None:
        with Holding():
            importlib.import_module("interrupted")
            come_through()

    with pytest.raises(KeyboardInterrupt):
        load()
    assert sys.modules.pop("interrupted").whole


def test_an_error_in_the_block_does_not_hide_an_interrupt() -> None:
    def work() -> None:
        with contextlib.suppress(ZeroDivisionError):
            hold(Hooks(removing=True), lambda: 1 / 0, list)
        come_through()

    with pytest.raises(KeyboardInterrupt):
        work()


@pytest.mark.parametrize("first", [0, 1])
def test_blocks_may_end_in_any_order(first: int) -> None:
    before = signal.getsignal(signal.SIGINT)
    blocks = [Holding(), Holding()]
    for block in blocks:
        block.__enter__()
    assert signal.getsignal(signal.SIGINT) is not before
    for index in (first, 1 - first):
        blocks[index].__exit__(None, None, None)
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_leaves_the_signals_alone() -> None:
    seen = []

    def work() -> None:
        hooks = Hooks()
        with Holding() as held:
            held.add(hooks.attach)
            seen.append(signal.getsignal(signal.SIGINT))
        seen.append(hooks.count)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT), 0]
