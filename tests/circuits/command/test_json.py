"""`--json` means the same for every verb: a file, or `-` and no words beside it."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from circuits.command.cli import _parser, main

from .conftest import TOY

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_every_verb_has_it_but_the_one_that_prints_a_script() -> None:
    (verbs,) = (
        action.choices
        for action in _parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    without = {
        name
        for name, verb in verbs.items()
        if not any("--json" in action.option_strings for action in verb._actions)
    }
    assert without == {"completion"}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str]:
    """The JSON that a command prints, and its words."""
    capsys.readouterr()
    assert main([*words, "--json", "-"]) == 0
    written = capsys.readouterr()
    return json.loads(written.out), written.err


def test_train_tells_the_run_and_its_arms(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("train", TOY, "--jobs", "1", "--seeds", "2", "--arms", "net")
    found, words = printed(capsys, *asked)
    assert words == f"{found['run']}\n"
    assert (found["study"], found["preset"]) == (TOY, "quick")
    assert found["seeds"] == [301, 302]
    assert found["arms"]["net"]["seeds"] == [301, 302]
    assert found["arms"]["twin"] is None
    assert main([*asked, "--json", "deep/run.json"]) == 0
    assert json.loads(Path("deep/run.json").read_text()) == found


@pytest.mark.parametrize(("kind", "place"), [("loss", "a.svg"), ("all", "drawn")])
def test_figure_tells_files_and_captions(
    toy_run: Path, capsys: pytest.CaptureFixture[str], kind: str, place: str
) -> None:
    found, words = printed(capsys, "figure", kind, str(toy_run), "-o", place)
    assert (found["run"], found["style"]) == (str(toy_run), "paper")
    (figure,) = found["figures"]
    assert figure["kind"] == "loss"
    assert words == f"{figure['file']}\n"
    caption = Path(figure["file"]).with_suffix(".txt").read_text()
    assert figure["caption"] == " ".join(caption.split())


def test_report_tells_what_the_page_holds(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, words = printed(capsys, "report", str(toy_run), "-o", "page.html")
    assert words == "page.html\n"
    assert found["page"] == "page.html"
    assert found["bytes"] == Path("page.html").stat().st_size
    assert found["prompts"] == 0
    (paper,) = found["papers"]
    assert (paper["study"], paper["score"]) == ("toy", 1.0)
    assert paper["verdicts"]["confirmed"] == 1
    assert (paper["figures"], paper["left_out"]) == (["loss"], [])


def test_export_tells_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    found, words = printed(capsys, "export", "bridge", "-o", "rows.jsonl")
    rows = Path("rows.jsonl").read_text().splitlines()
    assert words == f"rows.jsonl: {len(rows)} rows\n"
    assert found == {
        "file": "rows.jsonl",
        "study": "bridge",
        "form": "scan",
        "rows": len(rows),
    }


def test_a_page_and_figures_beside_verdicts_leave_the_output_to_the_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("confirm", TOY, "--jobs", "1", "--figures", "--report", "page.html")
    found, words = printed(capsys, *asked)
    assert found["study"] == "toy"
    *_, figure, page = words.splitlines()
    assert (Path(figure).name, page) == ("loss.png", "page.html")


def test_verdicts_that_cannot_be_printed_are_kept(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ascii_only(*_args: object, **_options: object) -> None:
        raise UnicodeEncodeError("ascii", "✓", 0, 1, "ordinal not in range(128)")

    monkeypatch.setattr("circuits.report.terminal.print_part", ascii_only)
    assert main(["probe", str(toy_run), "--json", "kept.json"]) == 3
    assert "ordinal not in range(128)" in capsys.readouterr().err
    assert json.loads(Path("kept.json").read_text())["study"] == "toy"
    assert (toy_run / "verdicts.json").exists()


def test_a_sweep_with_figures_leaves_the_output_to_the_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("sweep", TOY, "--grid", "width=3,4", "--jobs", "1", "-o", "maps")
    found, words = printed(capsys, *asked)
    assert found
    assert words.splitlines()[-1].endswith(".png")


def test_a_bad_place_is_refused_before_the_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("file").touch()
    assert main(["train", TOY, "--json", "file/x.json"]) == 2
    assert "--json file/x.json" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_list_writes_a_file_and_still_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", TOY, "--json", "x.json"]) == 0
    assert "toy.size" in capsys.readouterr().out
    assert json.loads(Path("x.json").read_text())[0]["study"] == "toy"
