"""One line that says what is done and how long is left; the clock is ours."""

import io
import subprocess
import sys
from collections.abc import Iterator

import pytest

from circuits import progress
from circuits.progress import ERASE, Line, duration


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")


def after(line: Line, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    line.tick()


def test_what_is_short_says_nothing(clock: Clock) -> None:
    for stream in (Terminal(), io.StringIO()):
        line = Line(stream, clock, refresh=0)
        with line.step("reading", 4) as done:
            after(line, clock, 1.9)
            done(4)
        assert stream.getvalue() == ""


def test_a_terminal_has_one_line_that_is_rewritten_and_then_gone(clock: Clock) -> None:
    screen = Terminal()
    line = Line(screen, clock, refresh=0)
    with line.step("reading", 4) as done:
        done(0)
        after(line, clock, 3)
        done(1)
        after(line, clock, 1)
    shown = screen.getvalue().split(ERASE)
    # One of four took 3 seconds; the second is one second under way.
    assert shown == [
        "",
        "reading 0 of 4, 3 s so far",
        "reading 1 of 4, about 8 s left",
        "",
    ]


def test_elsewhere_there_is_a_line_now_and_then(clock: Clock) -> None:
    log = io.StringIO()
    line = Line(log, clock, refresh=0)
    with line.step("reading", 100) as done:
        done(0)
        for number in range(1, 91):
            done(number)
            after(line, clock, 1)
    assert log.getvalue().splitlines() == [
        "reading 2 of 100, about 48 s left",
        "reading 32 of 100, about 65 s left",
        "reading 62 of 100, about 36 s left",
    ]


def test_work_that_goes_on_is_not_taken_for_quick(clock: Clock) -> None:
    line = Line(Terminal(), clock, refresh=0)
    with line.step("reading", 100) as done:
        done(90)
        clock.now += 10
        done(91)
        assert done.left(clock.now) == pytest.approx(90)
        # What should be done by now and is not: the pace tells nothing.
        assert done.left(clock.now + 91) is None


def test_steps_within_steps_share_the_line_and_the_outer_one_tells_the_time(
    clock: Clock,
) -> None:
    log = io.StringIO()
    line = Line(log, clock, refresh=0)
    around = (line.step("command"), line.step("sweep", 99), line.step("judging"))
    with around[0], around[1] as outer, around[2]:
        outer(0)
        after(line, clock, 2)
        outer(1, "width=4")
        after(line, clock, 30)
    assert log.getvalue().splitlines() == [
        "sweep 0 of 99 · judging, 2 s so far",
        "sweep width=4 · judging, about 3 min left",
    ]


def test_a_poll_is_asked_where_nobody_says(clock: Clock) -> None:
    found = iter([(0.0, "0 arms"), (1.0, "1 arm"), (1.0, "1 arm")])
    log = io.StringIO()
    line = Line(log, clock, refresh=0)
    with line.step("training", 4.0, lambda: next(found)):
        line.tick()
        after(line, clock, 10)
        assert log.getvalue() == "training 1 arm, about 30 s left\n"
        after(line, clock, 30)
        assert log.getvalue().endswith("training 1 arm, about 0 s left\n")


def test_a_line_that_stays_takes_the_place_of_the_one_shown(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Terminal()
    line = Line(screen, clock, refresh=0)
    with line.step("drawing"):
        after(line, clock, 5)
        line.print("a.png", sys.stdout)
        assert screen.getvalue().endswith(ERASE)
    assert capsys.readouterr().out == "a.png\n"


def test_what_a_title_holds_neither_moves_the_cursor_nor_breaks_the_line(
    clock: Clock,
) -> None:
    screen = Terminal()
    line = Line(screen, clock, refresh=0)
    with line.step("opening \x1b[2J" + "x" * 200):
        after(line, clock, 5)
    (shown,) = filter(None, screen.getvalue().split(ERASE))
    assert len(shown) == 79
    assert shown.startswith("opening \\x1b[2J")
    assert shown.endswith("x…, 5 s so far")


def test_nobody_has_to_listen(clock: Clock) -> None:
    closed = io.StringIO()
    closed.close()
    line = Line(closed, clock, refresh=0)
    with line.step("reading"):
        after(line, clock, 5)


def test_a_failure_leaves_no_line_behind(clock: Clock) -> None:
    screen = Terminal()
    line = Line(screen, clock, refresh=0)

    def work() -> Iterator[int]:
        with line.step("reading"):
            after(line, clock, 5)
            yield 1
            raise RuntimeError

    with pytest.raises(RuntimeError):
        list(work())
    assert screen.getvalue().endswith(ERASE)


def test_what_others_print_stands_where_the_line_was(clock: Clock) -> None:
    screen = Terminal()
    line = Line(screen, clock, refresh=0)
    with line.step("judging", 4) as done:
        done(0)
        after(line, clock, 3)
        with line.aside():
            screen.write("a headline\n")
        after(line, clock, 1)
    assert screen.getvalue().split(ERASE) == [
        "",
        "judging 0 of 4, 3 s so far",
        "a headline\n",
        "judging 0 of 4, 4 s so far",
        "",
    ]


def test_the_items_of_a_step_are_named() -> None:
    seen = list(progress.each("reading", ["a", "b"], name=str))
    assert seen == ["a", "b"]


def test_times_are_in_the_unit_that_fits() -> None:
    assert [duration(s) for s in (8.2, 600, 7200)] == ["8 s", "10 min", "2.0 h"]


def test_it_is_said_while_the_work_goes_on_and_without_torch() -> None:
    code = (
        "import sys, time\n"
        "from circuits import progress\n"
        "progress.PATIENCE = 0.1\n"
        "progress._LINE._refresh = 0.1\n"
        "for _ in progress.each('counting', [1, 2]): time.sleep(0.5)\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert done.stderr.splitlines() == ["counting 1 of 2, 0 s so far"]
