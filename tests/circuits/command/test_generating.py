"""`reasonscope inspect --generate N` and `--chat` from end to end."""

import json
from pathlib import Path
from typing import Any

import pytest

from circuits.command.cli import main
from circuits.models import open as pretrained
from tests.random_models import letter_tokenizer, random_model

TEMPLATE = "{% for m in messages %}A{{ m['content'] }}.{% endfor %}B"


@pytest.fixture
def tokenizer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opening gives a tiny random model with this tokenizer."""
    letters = letter_tokenizer()
    hf = random_model("gpt2")
    hf.generation_config.eos_token_id = letters.eos_token = None

    def fake(name: str, **options: Any) -> Any:
        del options
        return pretrained.wrap(hf, letters, name=name)

    monkeypatch.setattr(pretrained, "open", fake)
    return letters


@pytest.mark.usefixtures("tokenizer")
def test_what_is_written_gives_a_table_an_object_and_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--steps", r"\s", "--step-roles", r"(?P<state>\S+)", "--target", "f"]
    edits = ["--knock-out", "1", "--exchange", "2:1", "--corrupt", "edcba"]
    asked = ["inspect", "tiny", "abcde", "--generate", "6", *options, *edits]
    assert main([*asked, "--role", "middle=c", "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "looks in the prompt at" in shown
    assert "without step 1: what followed is" in shown
    assert "step 2 exchanged at layer 1" in shown
    found = json.loads((out / "inspect.json").read_text())
    assert found["mass"]["labels"]["key"][:3] == ["first", "middle", "rest"]
    assert found["log_prob"]["labels"]["target"] == ["written", "f"]
    assert len(found["steps"]) == 6
    assert found["spans"]["step 2 state"] == found["steps"][1]["text"]
    effect = found["effects"]["without step 1"]
    assert len(effect["before"]) == len(effect["after"]) == 5
    assert [file.name for file in out.glob("*.png")] == ["chain.png"]


def test_a_template_is_applied_to_prompts(
    tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.chat_template = TEMPLATE
    asked = ["inspect", "tiny", "cde", "--chat", "--json", "-"]
    assert main([*asked, "--role", "d=d"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["prompt"] == "Acde.B"
    assert main([*asked, "--generate", "2", "--signal", "logit"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["prompt"].split() == list("Acde.B")
    assert "mass" not in written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--chat"], "the tokenizer of tiny has no chat template"),
        (["--chat", "--generate", "2"], "the tokenizer of tiny has no chat template"),
        (["--generate", "0"], "--generate 0: at least one token"),
        (["--generate", "99"], "99 new tokens after 5: tiny reads at most 32"),
        (["--generate", "2", "--signal", "alignment"], "choose from: attention, logit"),
        (["--generate", "2", "--steps", "("], "is no regular expression"),
        (["--generate", "2", "--answer", "f"], "--answer does not go with --generate"),
        (["--generate", "2", "--exchange", "1:1"], "--corrupt PROMPT go together"),
        (["--generate", "2", "--exchange", "1"], "give STEP:LAYER"),
        (["--generate", "2", "--knock-out", "7"], "unknown step '7'"),
        (["--steps", "x"], "--steps goes only with --generate N"),
    ],
)
@pytest.mark.usefixtures("tokenizer")
def test_bad_input_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "tiny", "abcde", *arguments]) == 2
    written = capsys.readouterr()
    assert words in written.err
    assert written.err.count("\n") == 1
