"""Work in processes that end with their parent, and whose death costs one task only.

The standard pool gives up all tasks when one process is killed, waits for running ones
when it is interrupted, and leaves orphans when the parent dies. Here a worker that
dies (as by the system, out of memory) fails the task it had, and another takes its
place; an interrupted parent ends its workers at once, and a dead parent's end
themselves. Nothing is lost by that: what they write is whole or not there.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from .errors import Incomplete, in_a_line

Task = TypeVar("Task")

Done = Callable[[Any, Exception | None], None]
"""(task, what went wrong or None): is told of every task as it ends."""


def in_processes(
    work: Callable[[Task], object],
    tasks: Sequence[Task],
    *,
    jobs: int,
    threads: int,
    done: Done,
) -> None:
    """Do every task in one of `jobs` processes.

    Args:
        work: a function of a module, which a new process imports.
        tasks: what it is called with, in this order.
        jobs: processes at a time.
        threads: CPU threads of each.
        done: called here for every task that ended.
    """
    waiting = deque(tasks)
    idle: list[_Worker[Task]] = []
    busy: dict[Any, _Worker[Task]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                idle = [worker for worker in idle if worker.process.is_alive()]
                worker = idle.pop() if idle else _Worker(work, threads)
                worker.begin(waiting.popleft())
                busy[worker.connection] = worker
            for connection in wait(list(busy)):
                worker = busy.pop(connection)
                error = worker.outcome()
                if worker.process.is_alive():
                    idle.append(worker)
                done(worker.task, error)
    finally:
        for worker in (*idle, *busy.values()):
            worker.end()


class _Worker(Generic[Task]):
    """A process that does one task after the other."""

    task: Task

    def __init__(self, work: Callable[[Task], object], threads: int) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, work, threads), daemon=True
        )
        with _uninterrupted():
            self.process.start()
        theirs.close()

    def begin(self, task: Task) -> None:
        self.task = task
        # One that has just died is found out by `outcome`.
        with suppress(OSError):
            self.connection.send(task)

    def outcome(self) -> Exception | None:
        try:
            error: Exception | None = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return Incomplete(f"its process ended {_how(self.process.exitcode)}")
        return error

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def _serve(
    connection: "Connection[Any, Any]", work: Callable[[Any], object], threads: int
) -> None:
    """What a worker does until its parent hangs up."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(threads)
    with suppress(EOFError):
        while True:
            connection.send(_tried(work, connection.recv()))


def _tried(work: Callable[[Any], object], task: Any) -> Exception | None:
    """What went wrong, in a form that can be sent."""
    try:
        work(task)
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return Incomplete(in_a_line(error))
        return error
    return None


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let what starts in the block never see Ctrl-C: that is the parent's to judge."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"with exit code {code}"
