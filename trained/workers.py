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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from .errors import Incomplete, Lost, in_a_line

Task = TypeVar("Task")


class Result(NamedTuple):
    """What a task gave, or what went wrong with it."""

    value: Any = None
    error: Exception | None = None


@runtime_checkable
class Executor(Protocol):
    """Does tasks somewhere: in processes here, or on a cluster."""

    def __call__(
        self,
        work: Callable[[Task], object],
        tasks: Sequence[Task],
        done: Callable[[Task, Result], Iterable[Task]],
    ) -> None:
        """Do every task, and what follows from it.

        Args:
            work: a function of a module, which a new process imports.
            tasks: what it is called with.
            done: called here for every task that ended; gives the tasks that follow.
        """


@dataclass(frozen=True)
class Processes:
    """The `Executor` of this machine: so many processes, of so many threads each."""

    jobs: int
    threads: int = 1

    def __call__(
        self,
        work: Callable[[Task], object],
        tasks: Sequence[Task],
        done: Callable[[Task, Result], Iterable[Task]],
    ) -> None:
        """Do every task in one of the processes."""
        in_processes(work, tasks, done, jobs=self.jobs, threads=self.threads)


def in_processes(
    work: Callable[[Task], object],
    tasks: Sequence[Task],
    done: Callable[[Task, Result], Iterable[Task]],
    *,
    jobs: int,
    threads: int,
) -> None:
    """Do every task in one of `jobs` processes of `threads` threads; see `Executor`.

    What follows from a task goes before what has waited longer: an arm is finished
    before the next is begun.
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
                outcome = worker.outcome()
                if worker.process.is_alive():
                    idle.append(worker)
                following = list(done(worker.task, outcome))
                waiting.extendleft(reversed(following))
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

    def outcome(self) -> Result:
        try:
            found: Result = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            ended = _how(self.process.exitcode)
            return Result(error=Lost(f"its process ended {ended}"))
        return found

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
            connection.send(tried(work, connection.recv()))


def tried(work: Callable[[Any], object], task: Any) -> Result:
    """What came of a task, in a form that can be sent."""
    try:
        return Result(work(task))
    except Exception as error:
        error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return Result(error=Incomplete(in_a_line(error)))
        return Result(error=error)


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
    # Starting this process, which comes with the first worker, lets signals through.
    resource_tracker.ensure_running()
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
