"""Processes that do tasks: one that dies or fails costs one task."""

import signal

import pytest

from trained.errors import Incomplete
from trained.workers import _tried, in_processes

HARMLESS, NO_SIGNAL = int(signal.SIGCHLD), 9999


@pytest.mark.slow
def test_a_process_that_is_killed_costs_its_task_only() -> None:
    ended: list[tuple[int, str]] = []

    def done(task: int, error: Exception | None) -> None:
        ended.append((task, "" if error is None else f"{type(error).__name__} {error}"))

    tasks = [HARMLESS, int(signal.SIGKILL), NO_SIGNAL, HARMLESS]
    in_processes(signal.raise_signal, tasks, jobs=1, threads=1, done=done)
    assert [task for task, _ in ended] == tasks
    assert [said.split()[:1] for _, said in ended] == [
        [],
        ["Incomplete"],
        ["OSError"],
        [],
    ]
    assert "its process ended by SIGKILL (out of memory?)" in ended[1][1]


@pytest.mark.slow
def test_what_goes_wrong_here_ends_the_processes() -> None:
    import multiprocessing

    def done(_task: object, _error: Exception | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_processes(signal.raise_signal, [HARMLESS] * 4, jobs=2, threads=1, done=done)
    assert multiprocessing.active_children() == []


class Unportable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_error_that_cannot_be_sent_is_sent_in_words() -> None:
    def fail(_task: int) -> None:
        raise Unportable(1, 2)

    error = _tried(fail, 0)
    assert isinstance(error, Incomplete)
    assert str(error) == "Unportable: 1 and 2"


def test_an_error_brings_its_traceback() -> None:
    error = _tried(lambda task: 1 / task, 0)
    assert isinstance(error, ZeroDivisionError)
    assert "in _tried" in error.__notes__[0]
    assert _tried(lambda task: 1 / task, 1) is None
