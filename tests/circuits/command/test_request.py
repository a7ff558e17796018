"""What a user asks for, checked before any work."""

import argparse
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from circuits.command.request import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    Parser,
    add_request_options,
    guarded,
    parse_seeds,
    request_from,
    script_request,
)
from circuits.study import Request
from trained.errors import BadInput, Incomplete

TOY = "tests.toy:STUDY"


def parsed(*arguments: str) -> argparse.Namespace:
    parser = Parser("command")
    add_request_options(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("1", (301,)),
        ("3", (301, 302, 303)),
        ("3,5,8", (3, 5, 8)),
        ("7,0", (7, 0)),
        ("5,", (5,)),
    ],
)
def test_seeds_are_a_number_or_a_list(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "x", "-1", "1.5", ",", "3,3", "3,x", " "])
def test_bad_seeds_are_refused_and_named(text: str) -> None:
    with pytest.raises(BadInput, match=f"--seeds {text}: give"):
        parse_seeds(text)


def test_options_become_a_request() -> None:
    options = parsed(
        *("--preset", "paper", "--seeds", "4,2", "--set", "width=5"),
        *("--set", "steps=2", "--device", "cpu", "--jobs", "3", "--out", "here"),
    )
    assert request_from(TOY, options) == Request(
        study=TOY,
        preset="paper",
        assignments=("width=5", "steps=2"),
        seeds=(4, 2),
        device="cpu",
        out=Path("here"),
        jobs=3,
    )


def test_without_options_the_quick_preset_is_asked_for() -> None:
    request = request_from(TOY, parsed())
    assert request == Request(TOY)
    assert (request.preset, request.seeds, request.device) == ("quick", None, "auto")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"study": "chess"}, "unknown study 'chess'"),
        ({"preset": "huge"}, "unknown preset 'huge'"),
        ({"assignments": ("depth=3",)}, "unknown config key 'depth'"),
        ({"assignments": ("width=x",)}, "width=x: expected a whole number"),
        ({"assignments": ("width=0",)}, "width=0: choose 1 to 99"),
        ({"device": "tpu"}, "unknown device 'tpu'; choose from: auto, cpu"),
        ({"jobs": 0}, "--jobs 0: give at least 1"),
    ],
)
def test_a_request_that_exists_can_be_run(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        Request(**{"study": TOY, **changes})


def test_a_script_reads_the_same_options() -> None:
    request = script_request(TOY, ["--seeds", "2", "--set", "width=5"])
    assert request == Request(TOY, seeds=(301, 302), assignments=("width=5",))
    with pytest.raises(BadInput, match=r"--colour .*python -m scripts\.tests\.toy"):
        script_request(TOY, ["--colour"])


def test_bad_input_is_one_line_and_exit_code_two(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work() -> int:
        raise BadInput("no such thing; choose another")

    assert guarded(work) == BAD_INPUT == 2
    written = capsys.readouterr()
    assert written.err == "reasonscope: no such thing; choose another\n"
    assert written.out == ""


def test_an_interruption_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise KeyboardInterrupt

    assert guarded(work) == INTERRUPTED
    assert capsys.readouterr().err == (
        "reasonscope: interrupted; repeat the command to go on\n"
    )


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("by 0"), OSError(errno.ENOSPC, "disk full")]
)
def test_a_failure_on_the_way_is_one_line_and_exit_code_three(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def work() -> int:
        raise error

    assert guarded(work) == FAILED == 3
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert str(error) in written
    assert guarded(work, debug=True) == FAILED
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_being_told_to_end_is_an_interruption(
    capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def work() -> int:
        signal.raise_signal(number)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert guarded(work) == INTERRUPTED
    assert "interrupted; repeat the command" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_unfinished_work_says_what_failed_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work() -> int:
        raise Incomplete("not trained: net: its process ended by SIGKILL")

    assert guarded(work) == FAILED
    assert capsys.readouterr().err == (
        "reasonscope: not trained: net: its process ended by SIGKILL\n"
    )


DEEP = """
import sys
from circuits.command.request import guarded
sys.exit(guarded(lambda: exec("raise KeyboardInterrupt")))
"""


def test_an_interrupt_inside_a_librarys_exec_has_our_exit_code(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text(DEEP)
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-m", "deep"]
    env = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True)
    assert (done.returncode, b"interrupted" in done.stderr) == (130, True)
