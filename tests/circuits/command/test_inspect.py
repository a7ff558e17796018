"""`reasonscope inspect` from end to end."""

import json
from pathlib import Path
from typing import Any

import pytest

from circuits.command.cli import main
from circuits.models import open as pretrained
from tests.random_models import letter_tokenizer, random_model


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Opening gives a tiny random model; what was asked for is kept."""
    asked: list[dict[str, Any]] = []

    def fake(name: str, **options: Any) -> Any:
        asked.append({"name": name, **options})
        return pretrained.wrap(random_model("gpt2"), letter_tokenizer(), name=name)

    monkeypatch.setattr(pretrained, "open", fake)
    return asked


def test_a_prompt_gives_a_table_an_object_and_figures(
    opened: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["inspect", "tiny", "abcde", "--answer", "f", "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "rank of f" in shown
    assert "next token: " in shown
    found = json.loads((out / "inspect.json").read_text())
    assert len(found["answer_rank"]) == len(found["answer_logprob"]) == 4
    assert found["layers"][0] == "embedding"
    assert found["answer"] == "f"
    figures = {file.name for file in out.glob("*.png")}
    assert figures == {"lens.png", "answer.png", "attention.png", "heads.png"}
    assert opened == [{"name": "tiny", "backend": "hf", "device": "auto"}]


@pytest.mark.usefixtures("opened")
def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "tiny", "abcde", "fghij", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["prompt"] for entry in found] == ["abcde", "fghij"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--signal", "smell"], "'smell'; choose from: lens, attention"),
        (["--backend", "magic"], "'magic'; choose from: hf, bridge, nnsight"),
        (["--signal", "patching"], "--corrupt PROMPT go together"),
        (["--corrupt", "abcdf"], "--signal patching and --corrupt"),
        (["--answer", "xyz"], "'xyz' must be one token"),
        (["--device", "moon"], "'moon'; choose from"),
    ],
)
@pytest.mark.usefixtures("opened")
def test_bad_input_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "tiny", "abcde", *arguments]) == 2
    written = capsys.readouterr()
    assert words in written.err
    assert written.err.count("\n") == 1
