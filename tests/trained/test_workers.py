"""Processes that do tasks: one that dies or fails costs one task."""

import multiprocessing
import operator
import os
import signal
import subprocess
import sys

import pytest

from trained.errors import Incomplete
from trained.workers import Processes, Result, kept, tried

HARMLESS, NO_SIGNAL = int(signal.SIGCHLD), 9999


@pytest.mark.slow
def test_a_process_that_is_killed_costs_its_task_only() -> None:
    ended: list[tuple[int, str]] = []

    def done(task: int, outcome: Result) -> tuple[int, ...]:
        error = outcome.error
        ended.append((task, "" if error is None else f"{type(error).__name__} {error}"))
        return ()

    tasks = [HARMLESS, int(signal.SIGKILL), NO_SIGNAL, HARMLESS]
    Processes(1)(signal.raise_signal, tasks, done)
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
    def done(_task: int, _outcome: Result) -> tuple[int, ...]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Processes(2)(signal.raise_signal, [HARMLESS] * 4, done)
    assert multiprocessing.active_children() == []


ALONE = """
import signal
from trained.workers import Processes
said = []
Processes(1)(signal.raise_signal, [signal.SIGINT] * 2, lambda _task, outcome:
             said.append(outcome.error) or ())
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

    Processes(1)(operator.neg, [1, 2], done)
    assert done_tasks == [1, 10, 11, 2, 20, 21]


def _process(_task: int) -> int:
    return os.getpid()


@pytest.mark.slow
def test_kept_processes_serve_every_call_and_end_with_the_block() -> None:
    seen: list[int] = []

    def done(_task: int, outcome: Result) -> tuple[int, ...]:
        seen.append(outcome.value)
        return ()

    with kept(Processes(1)) as executor:
        assert executor is not None
        executor(_process, [0, 0], done)
        executor(operator.neg, [3], done)
        executor(_process, [0], done)
        (worker,) = multiprocessing.active_children()
    assert seen == [worker.pid, worker.pid, -3, worker.pid]
    assert multiprocessing.active_children() == []


def _parent(_task: int) -> int:
    return os.getppid()


@pytest.mark.slow
def test_a_process_knows_what_its_parent_has_set_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str | None] = []

    def done(_task: str, outcome: Result) -> tuple[str, ...]:
        found.append(outcome.value)
        return ()

    for value in ("one", "two"):
        monkeypatch.setenv("REASONSCOPE_TRIED", value)
        Processes(1)(os.getenv, ["REASONSCOPE_TRIED"], done)
    monkeypatch.delenv("REASONSCOPE_TRIED")
    Processes(1)(os.getenv, ["REASONSCOPE_TRIED"], done)
    assert found == ["one", "two", None]


@pytest.mark.slow
def test_elsewhere_than_on_linux_nothing_is_forked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trained.workers.sys.platform", "darwin")
    parents: list[int] = []

    def done(_task: int, outcome: Result) -> tuple[int, ...]:
        parents.append(outcome.value)
        return ()

    Processes(1)(_parent, [0], done)
    assert parents == [os.getpid()]


@pytest.mark.slow
def test_processes_of_every_pool_are_forks_of_one_that_has_imported() -> None:
    parents: list[int] = []

    def done(_task: int, outcome: Result) -> tuple[int, ...]:
        parents.append(outcome.value)
        return ()

    for _ in range(2):
        Processes(1)(_parent, [0], done)
    assert parents[0] == parents[1] != os.getpid()


def test_what_has_no_processes_is_kept_as_it_is() -> None:
    with kept(None) as executor:
        assert executor is None
