"""Processes that do tasks: one that dies or fails costs one task."""

import operator
import signal
import subprocess
import sys

import pytest

from trained.errors import Incomplete
from trained.workers import Result, in_processes, tried

HARMLESS, NO_SIGNAL = int(signal.SIGCHLD), 9999


@pytest.mark.slow
def test_a_process_that_is_killed_costs_its_task_only() -> None:
    ended: list[tuple[int, str]] = []

    def done(task: int, outcome: Result) -> tuple[int, ...]:
        error = outcome.error
        ended.append((task, "" if error is None else f"{type(error).__name__} {error}"))
        return ()

    tasks = [HARMLESS, int(signal.SIGKILL), NO_SIGNAL, HARMLESS]
    in_processes(signal.raise_signal, tasks, done, jobs=1, threads=1)
    assert [task for task, _ in ended] == tasks
    assert [said.split()[:1] for _, said in ended] == [
        [],
        ["Lost"],
        ["OSError"],
        [],
    ]
    assert "its process ended by SIGKILL (out of memory?)" in ended[1][1]


@pytest.mark.slow
def test_what_goes_wrong_here_ends_the_processes() -> None:
    import multiprocessing

    def done(_task: int, _outcome: Result) -> tuple[int, ...]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_processes(signal.raise_signal, [HARMLESS] * 4, done, jobs=2, threads=1)
    assert multiprocessing.active_children() == []


ALONE = """
import signal
from trained.workers import in_processes
said = []
in_processes(signal.raise_signal, [signal.SIGINT] * 2, lambda _task, outcome:
             said.append(outcome.error) or (), jobs=1, threads=1)
print(said)
"""


@pytest.mark.slow
def test_the_first_worker_is_deaf_to_ctrl_c_too() -> None:
    # In a process that has had none: what comes with the first one unblocks signals.
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[None, None]", "")


class Unportable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_error_that_cannot_be_sent_is_sent_in_words() -> None:
    def fail(_task: int) -> None:
        raise Unportable(1, 2)

    error = tried(fail, 0).error
    assert isinstance(error, Incomplete)
    assert str(error) == "Unportable: 1 and 2"


def test_an_error_brings_its_traceback() -> None:
    error = tried(lambda task: 1 / task, 0).error
    assert isinstance(error, ZeroDivisionError)
    assert "in tried" in error.__notes__[0]
    assert tried(lambda task: 1 / task, 1) == Result(1.0)


def test_what_follows_from_a_task_is_done_next() -> None:
    done_tasks: list[int] = []

    def done(task: int, outcome: Result) -> list[int]:
        done_tasks.append(task)
        assert outcome.value == -task
        return [task * 10, task * 10 + 1] if task < 10 else []

    in_processes(operator.neg, [1, 2], done, jobs=1, threads=1)
    assert done_tasks == [1, 10, 11, 2, 20, 21]
