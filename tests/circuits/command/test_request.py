"""What a user asks for, checked before any work."""

import argparse
from pathlib import Path

import pytest

from circuits.command.request import (
    BAD_INPUT,
    INTERRUPTED,
    Parser,
    Request,
    add_request_options,
    guarded,
    parse_seeds,
    request_from,
    script_request,
)
from trained.errors import BadInput


def parsed(*arguments: str) -> argparse.Namespace:
    parser = Parser("command")
    add_request_options(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1", (0,)), ("3", (0, 1, 2)), ("3,5,8", (3, 5, 8)), ("7,0", (7, 0))],
)
def test_seeds_are_a_number_or_a_list(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "x", "-1", "1.5", "3,", ",", "3,3", "3,x", " "])
def test_bad_seeds_are_refused_and_named(text: str) -> None:
    with pytest.raises(BadInput, match=f"--seeds {text}: give"):
        parse_seeds(text)


@pytest.mark.usefixtures("toy_studies")
def test_options_become_a_request() -> None:
    options = parsed(
        *("--preset", "paper", "--seeds", "4,2", "--set", "width=5"),
        *("--set", "steps=2", "--device", "cpu", "--jobs", "3", "--out", "here"),
    )
    assert request_from("toy", options) == Request(
        study="toy",
        preset="paper",
        assignments=("width=5", "steps=2"),
        seeds=(4, 2),
        device="cpu",
        out=Path("here"),
        jobs=3,
    )


@pytest.mark.usefixtures("toy_studies")
def test_without_options_the_quick_preset_is_asked_for() -> None:
    request = request_from("toy", parsed())
    assert request == Request("toy")
    assert (request.preset, request.seeds, request.device) == ("quick", None, "auto")


@pytest.mark.usefixtures("toy_studies")
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
        Request(**{"study": "toy", **changes})


@pytest.mark.usefixtures("toy_studies")
def test_a_script_reads_the_same_options() -> None:
    request = script_request("toy", ["--seeds", "2", "--set", "width=5"])
    assert request == Request("toy", seeds=(0, 1), assignments=("width=5",))
    with pytest.raises(BadInput, match=r"--colour .*python -m scripts\.toy --help"):
        script_request("toy", ["--colour"])


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


def test_a_mistake_of_the_program_is_not_hidden() -> None:
    def work() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded(work)
