"""Several courses of work on one executor: where one has to wait, the next goes on.

A course is a generator that yields rounds. The tasks of a round may be done side by
side, and the course goes on when all of them are done: it trains, then it judges. The
last task of a round would leave the other processes idle; they begin the next course.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .workers import Executor, Result, tried

Found = TypeVar("Found")


@dataclass(frozen=True)
class Round:
    """Tasks that may be done side by side, and those that follow; see `Executor`."""

    work: Callable[[Any], object]
    tasks: Sequence[Any]
    done: Callable[[Any, Result], Iterable[Any]]


Course = Generator[Round, None, Found]
"""What a course returns is what came of it."""


def drive(
    executor: Executor | None, courses: Iterable[Course[Found]]
) -> Iterator[Found]:
    """Do the courses, each as far as it can go before the next is begun.

    Args:
        executor: what does their tasks; None: this process, one after the other.
        courses: begun one by one, when there is nothing left to do for the others.

    Returns:
        What came of each, in their order.
    """
    driven = _Driven(courses)
    try:
        (executor or _here)(_do, driven.tasks(), driven.done)
    finally:
        driven.close()
    return driven.found()


class _Task(NamedTuple):
    course: int
    work: Callable[[Any], object]
    task: Any


def _do(task: _Task) -> object:
    return task.work(task.task)


def _here(
    work: Callable[[Any], object],
    tasks: Iterable[Any],
    done: Callable[[Any, Result], Iterable[Any]],
) -> None:
    for task in tasks:
        _here(work, done(task, tried(work, task)), done)


class _Driven:
    """The courses that were begun, and what each of them waits for."""

    def __init__(self, courses: Iterable[Course[Any]]) -> None:
        self._left = iter(courses)
        self._begun: list[Course[Any]] = []
        self._rounds: dict[int, Round] = {}
        self._open: dict[int, int] = {}
        self._found: dict[int, Any] = {}

    def tasks(self) -> Iterator[_Task]:
        for number, course in enumerate(self._left):
            self._begun.append(course)
            yield from self._go_on(number)

    def done(self, task: _Task, result: Result) -> list[_Task]:
        number = task.course
        following = self._of(number, self._rounds[number].done(task.task, result))
        self._open[number] += len(following) - 1
        return following if self._open[number] else self._go_on(number)

    def found(self) -> Iterator[Any]:
        return (self._found[number] for number in sorted(self._found))

    def close(self) -> None:
        """Let every course put away what it holds, also one that is not done."""
        for course in self._begun:
            course.close()

    def _go_on(self, number: int) -> list[_Task]:
        """The tasks of the course's next round; none when it is at its end."""
        try:
            while not (round_ := next(self._begun[number])).tasks:
                pass
        except StopIteration as end:
            self._found[number] = end.value
            return []
        self._rounds[number] = round_
        tasks = self._of(number, round_.tasks)
        self._open[number] = len(tasks)
        return tasks

    def _of(self, number: int, tasks: Iterable[Any]) -> list[_Task]:
        return [_Task(number, self._rounds[number].work, task) for task in tasks]
