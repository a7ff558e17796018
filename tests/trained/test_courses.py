"""Courses of work: what one waits for does not keep the next from beginning."""

import operator
from collections.abc import Iterable, Iterator

import pytest

from trained.courses import Course, Round, drive
from trained.workers import Processes, Result


def course(name: str, said: list[str], *rounds: list[int]) -> Course[int]:
    """Adds up the negatives of its rounds, one after the other."""
    total = 0

    def done(task: int, result: Result) -> tuple[()]:
        nonlocal total
        total += result.value
        said.append(f"{name}{task}")
        return ()

    said.append(f"{name} begins")
    try:
        for tasks in rounds:
            yield Round(operator.neg, tasks, done)
    finally:
        said.append(f"{name} ends")
    return total


def test_here_one_course_follows_the_other() -> None:
    said: list[str] = []
    both = [course("a", said, [1, 2], [3]), course("b", said, [4])]
    assert list(drive(None, both)) == [-6, -4]
    assert " ".join(said) == "a begins a1 a2 a3 a ends b begins b4 b ends"


def test_a_course_without_tasks_goes_on_at_once() -> None:
    said: list[str] = []
    assert list(drive(None, [course("a", said), course("b", said, [], [5], [])])) == [
        0,
        -5,
    ]


class TwoPlaces:
    """Executes in this process, as two that take turns: the second task ends first."""

    def __call__(self, work: object, tasks: Iterable[object], done: object) -> None:
        waiting: list[object] = []
        others = iter(tasks)
        busy: list[object] = []
        while True:
            while len(busy) < 2:
                task = waiting.pop(0) if waiting else next(others, None)
                if task is None:
                    break
                busy.append(task)
            if not busy:
                return
            ended = busy.pop()
            waiting[:0] = done(ended, Result(work(ended)))  # type: ignore[operator]


def test_a_place_that_one_course_leaves_idle_is_the_next_ones() -> None:
    said: list[str] = []
    both = [course("a", said, [1], [2, 3]), course("b", said, [4, 5])]
    assert list(drive(TwoPlaces(), both)) == [-6, -9]  # type: ignore[arg-type]
    # a1 takes one place; b is begun for the other, and a goes first when it can.
    assert said.index("b begins") < said.index("a1")
    assert said.index("a begins") < said.index("b begins")


def test_a_course_begins_only_when_there_is_room() -> None:
    said: list[str] = []
    begun: list[str] = []

    def courses() -> Iterator[Course[int]]:
        for name in "abc":
            begun.append(f"{name} after {len(said)} words")
            yield course(name, said, [1, 2, 3])

    list(drive(None, courses()))
    assert begun == ["a after 0 words", "b after 5 words", "c after 10 words"]


def test_what_follows_belongs_to_the_round() -> None:
    seen: list[int] = []

    def done(task: int, _result: Result) -> list[int]:
        seen.append(task)
        return [task * 10] if task < 100 else []

    def following() -> Course[str]:
        yield Round(operator.neg, [1, 2], done)
        seen.append(0)
        return "done"

    assert list(drive(None, [following()])) == ["done"]
    assert seen == [1, 10, 100, 2, 20, 200, 0]


def test_what_fails_ends_every_course() -> None:
    said: list[str] = []

    def refused(_task: int, _result: Result) -> tuple[()]:
        raise ValueError("no")

    def failing() -> Course[int]:
        yield Round(operator.neg, [1], refused)
        return 0

    both = [course("a", said, [1], [2]), failing()]
    with pytest.raises(ValueError, match="no"):
        drive(TwoPlaces(), both)  # type: ignore[arg-type]
    assert said[-1] == "a ends"


@pytest.mark.slow
def test_processes_serve_several_courses() -> None:
    said: list[str] = []
    both = [course("a", said, [1, 2], [3]), course("b", said, [4, 5])]
    assert list(drive(Processes(2), both)) == [-6, -9]
    assert sorted(said)[:3] == ["a begins", "a ends", "a1"]
