"""`reasonscope scan` from end to end."""

import json
from pathlib import Path
from typing import Any

import pytest

from circuits.command.cli import main
from circuits.models import open as pretrained
from circuits.scan import scan as scanning
from tests.random_models import letter_tokenizer, random_model

ROWS = [
    {
        "prompt": "abcdefg",
        "answer": "hi",
        "corrupt": "abxdefg",
        "corrupt_answer": "y",
        "roles": {"[red]$x$": "c", "中": "ef"},
    },
    {"prompt": "jklmn", "answer": ["o", "p"], "roles": {"中": "kl"}, "group": "b"},
    {"prompt": "qrstuv", "answer": "w"},
]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of rows; opening gives a tiny random model."""

    def fake(name: str, **_options: Any) -> Any:
        return pretrained.wrap(random_model("gpt2"), letter_tokenizer(), name=name)

    monkeypatch.setattr(scanning, "open_model", fake)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return file


def test_a_dataset_gives_tables_a_summary_and_figures(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    signals = "lens,attention,alignment,patching,attribution,mlp_out:1"
    command = ["scan", "tiny", str(data), "-o", str(out), "--signals", signals]
    assert main([*command, "--workers", "1", "--json", str(tmp_path / "s.json")]) == 0
    written = capsys.readouterr()
    assert "tiny on rows.jsonl: 3 prompts" in written.out
    assert "[red]$x$" in written.out
    assert written.err == ""
    figures = {file.stem for file in out.glob("*.png")}
    assert figures == {"lens", "attention", "alignment", "patching", "attribution"}
    stored = json.loads((out / "summary.json").read_text())
    assert stored == json.loads((tmp_path / "s.json").read_text())
    assert set(stored["signals"]) == set(signals.split(","))
    text = (out / "manifest.json").read_text() + (out / "summary.json").read_text()
    assert str(tmp_path) not in text
    assert main([*command, "--workers", "1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--signals", "smell"], "unknown signal 'smell'; choose from: lens"),
        (["--signals", ""], "unknown signal ''"),
        (["--signals", "resid_post"], "unknown signal 'resid_post'"),
        (["--dtype", "int8"], "unknown dtype 'int8'; choose from: float32"),
        (["--device", "moon"], "'moon'; choose from"),
        (["--backend", "magic"], "'magic'; choose from: hf"),
        (["--workers", "0"], "--workers 0: give at least 1"),
        (["--batch-tokens", "0"], "--batch-tokens 0: give at least 1"),
        (["--columns", "a"], "--columns a: give old=new"),
    ],
)
def test_bad_input_is_one_line(
    data: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = data.parent / "out"
    assert main(["scan", "tiny", str(data), "-o", str(out), *arguments]) == 2
    written = capsys.readouterr()
    assert words in written.err
    assert written.err.count("\n") == 1
    assert not out.exists()


def test_a_note_says_that_no_answer_has_a_space(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["scan", "tiny", str(data), "-o", str(tmp_path / "out"), "--workers", "1"]
    assert main([*command, "--signals", "lens"]) == 0
    assert "note: no prompt ends and no answer begins" in capsys.readouterr().out


def test_alignment_of_too_few_prompts_names_no_layer(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["scan", "tiny", str(data), "-o", str(tmp_path / "out"), "--workers", "1"]
    assert main([*command, "--signals", "alignment"]) == 0
    said = capsys.readouterr().out
    (line,) = (x for x in said.splitlines() if "[red]$x$" in x and "中" in x)
    assert "too few prompts" in line
    assert "embedding" not in line
