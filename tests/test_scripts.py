"""The scripts ask, refuse and judge as the command does."""

import json
import runpy
from pathlib import Path

import pytest

from circuits.command.cli import main as command
from circuits.study import STUDIES

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    file.stem for file in (ROOT / "scripts").glob("*.py") if file.stem in STUDIES
)
TINY = [
    *("--seeds", "1", "--jobs", "1"),
    *("--set", "n_subjects=4", "--set", "n_relations=4", "--set", "full_steps=20"),
    *("--set", "full_batch=32", "--set", "n_test=100", "--set", "n_probe=400"),
    *("--set", "partial.steps=20", "--set", "samples.subjects=", "--set"),
    *("warmup.steps=20", "--set", "warmup.draws=2", "--set", "warmup.points=500"),
    *("--set", "few.temperatures=", "--set", "rate.temperatures="),
    *("--set", "first_step.draws=0", "--set", "pretrained.steps=0"),
    *("--set", "direct_steps=5"),
]


def leave(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> int:
    """The exit code of `python -m scripts.<script>`."""
    monkeypatch.setattr("sys.argv", [script, *arguments])
    with pytest.raises(SystemExit) as leaving:
        runpy.run_module(f"scripts.{script}", run_name="__main__")
    return int(leaving.value.code or 0)


def test_every_study_has_a_script() -> None:
    assert set(SCRIPTS) == set(STUDIES)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_gives_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    assert leave(monkeypatch, script, "--help") == 0
    assert f"usage: python -m scripts.{script}" in capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    "arguments", [("--set", "colour=red"), ("--preset", "huge"), ("--seeds", "0")]
)
def test_a_script_refuses_bad_input_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert leave(monkeypatch, script, *arguments) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_recall_script_and_the_command_give_the_same_verdicts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    codes, verdicts = [], []
    codes.append(leave(monkeypatch, "recall", *TINY, "--out", str(tmp_path / "one")))
    (run,) = (tmp_path / "one").iterdir()
    verdicts.append(json.loads((run / "verdicts.json").read_text())["verdicts"])
    assert (run / "figures" / "attention.png").is_file()
    file = tmp_path / "two.json"
    options = [*TINY, "--out", str(tmp_path / "two"), "--json", str(file)]
    codes.append(command(["confirm", "recall", *options]))
    verdicts.append(json.loads(file.read_text())["verdicts"])
    assert codes[0] == codes[1]
    for verdict in (*verdicts[0], *verdicts[1]):
        verdict.pop("seconds")
    assert verdicts[0] == verdicts[1]
