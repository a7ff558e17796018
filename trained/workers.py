"""Work in processes that end with their parent, and whose death costs one task only.

The standard pool gives up all tasks when one process is killed, waits for running ones
when it is interrupted, and leaves orphans when the parent dies. Here a worker that
dies (as by the system, out of memory) fails the task it had, and another takes its
place; an interrupted parent ends its workers at once, and a dead parent's end
themselves. Nothing is lost by that: what they write is whole or not there.
"""

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, islice
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from .errors import Incomplete, Lost, in_a_line
from .memory import keep_freed_memory

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
        tasks: Iterable[Task],
        done: Callable[[Task, Result], Iterable[Task]],
    ) -> None:
        """Do every task, and what follows from it.

        Args:
            work: a function of a module, which a new process imports.
            tasks: what it is called with; each is asked for when there is room for it.
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
        tasks: Iterable[Task],
        done: Callable[[Task, Result], Iterable[Task]],
    ) -> None:
        """Do every task in one of the processes, which then end."""
        with self.kept() as pool:
            pool(work, tasks, done)

    @contextmanager
    def kept(self) -> Iterator["Pool"]:
        """The same, but its processes serve every call until the block ends.

        Each of them imports what measures, and remembers what it measured.
        """
        pool = Pool(self)
        try:
            yield pool
        finally:
            pool.end()


@contextmanager
def kept(executor: Executor | None) -> Iterator[Executor | None]:
    """The executor, whose processes stay, if it has any, until the block ends.

    What they are forked from is started at once: it imports while the caller still
    prepares their tasks. It stays until this process ends, for the next ones.
    """
    if isinstance(executor, Processes):
        _prepare()
        with executor.kept() as pool:
            yield pool
    else:
        yield executor


class Pool:
    """Processes that are started when needed; see `Processes.kept`."""

    def __init__(self, size: Processes) -> None:
        self._size = size
        self._idle: list[_Worker] = []
        self._busy: dict[Any, _Worker] = {}

    def __call__(
        self,
        work: Callable[[Task], object],
        tasks: Iterable[Task],
        done: Callable[[Task, Result], Iterable[Task]],
    ) -> None:
        """Do every task in one of the processes; see `Executor`.

        What follows from a task goes before what has waited longer: an arm is finished
        before the next is begun.
        """
        waiting, others = deque[Task](), iter(tasks)
        try:
            while True:
                for task in islice(chain(_emptied(waiting), others), self._places):
                    worker = self._free()
                    worker.begin(work, task)
                    self._busy[worker.connection] = worker
                if not self._busy:
                    return
                for connection in wait(list(self._busy)):
                    worker = self._busy.pop(connection)
                    outcome = worker.outcome()
                    self._idle.append(worker)
                    following = list(done(worker.task, outcome))
                    waiting.extendleft(reversed(following))
        except BaseException:
            # Nobody will ask what is still under way.
            self.end()
            raise

    @property
    def _places(self) -> int:
        return self._size.jobs - len(self._busy)

    def end(self) -> None:
        """End all processes, also those at work."""
        for worker in (*self._idle, *self._busy.values()):
            worker.end()
        self._idle, self._busy = [], {}

    def _free(self) -> "_Worker":
        self._idle = [worker for worker in self._idle if worker.process.is_alive()]
        return self._idle.pop() if self._idle else _Worker(self._size.threads)


def _emptied(waiting: deque[Task]) -> Iterator[Task]:
    while waiting:
        yield waiting.popleft()


IMPORTED = "trained.decoder"
"""What every study builds on; with torch it takes seconds to import."""


def _prepare() -> SpawnContext | ForkServerContext:
    """How workers are started; what they are forked from begins to import.

    One process imports for all workers of this one, and each is a fork of it that
    shares its memory. It computes nothing, so nothing is cut short by a fork: of its
    other threads OpenBLAS's is ended before one, and forks do without pyarrow's, which
    tidies memory up.
    Elsewhere than on Linux, forks of what has loaded a system's libraries are not safe.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([IMPORTED])
    with _uninterrupted():
        forkserver.ensure_running()
    return context


class _Worker:
    """A process that does one task after the other."""

    task: Any

    def __init__(self, threads: int) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.process = _prepare().Process(
            target=_serve, args=(theirs, threads, {**os.environ}), daemon=True
        )
        with _uninterrupted():
            self.process.start()
        theirs.close()

    def begin(self, work: Callable[[Any], object], task: Any) -> None:
        self.task = task
        # One that has just died is found out by `outcome`.
        with suppress(OSError):
            self.connection.send((work, task))

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
    connection: "Connection[Any, Any]", threads: int, environment: dict[str, str]
) -> None:
    """What a worker does until its parent hangs up."""
    # What it is a fork of may be older than what its parent has set since.
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    import_module(IMPORTED)
    import torch

    torch.set_num_threads(threads)
    # What was imported stays: it need not be searched for garbage again and again.
    gc.freeze()
    with suppress(EOFError):
        while True:
            connection.send(tried(*connection.recv()))


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
