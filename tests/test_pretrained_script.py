"""Claims about language models are judged by `confirm --model`, or by the script."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from circuits.claims import Claim, Null
from circuits.command.cli import main as command
from circuits.conditions import Mean
from circuits.lab import LanguageLab
from circuits.models import open as opening
from circuits.study import LanguagePart
from scripts.pretrained import main
from tests import toy
from tests.word_models import word_model
from trained.config import Preset


@dataclass(frozen=True)
class Settings:
    """How far the toy lab counts."""

    prompts: int = 4


class ToyLanguageLab(LanguageLab):
    """Counts the parameters that look trained, in a way."""

    def size(self) -> list[float]:
        trained = "random weights" not in self.model.name
        return self.each(lambda seed: self.settings.prompts + seed if trained else 0.0)


CLAIM = Claim(
    "toy.llm.size",
    "The model has prompts.",
    source="Section 6",
    kind="signal",
    conditions=(Mean("size", "> 0.5", lambda lab: lab.size()),),
    nulls=(Null("random twin", on=lambda lab: lab.twin()),),
    headline="Language models",
)
STUDY = replace(
    toy.STUDY,
    language=LanguagePart(
        settings=Settings,
        presets={"quick": Preset(Settings(), n_seeds=3, cost="a blink")},
        claims=lambda _settings: [CLAIM],
        lab=ToyLanguageLab,
    ),
)
REFERENCE = "tests.test_pretrained_script:STUDY"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "open", lambda *_args, **_options: word_model(["a"]))


def test_verdicts_are_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verdicts.json"
    options = ["--seeds", "3", "--json", str(file), "--set", "prompts=9"]
    assert main(["tiny", REFERENCE, *options]) == 0
    assert "paper score: 100% confirmed" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert (written["schema"], written["study"], written["model"]) == (
        2,
        "toy",
        "model",
    )
    assert written["config"] == {"prompts": 9}
    assert written["verdicts"][0]["values"] == [310.0, 311.0, 312.0]
    assert written["verdicts"][0]["nulls"][0]["values"] == [0.0]


def test_a_claim_that_fails_gives_exit_code_one() -> None:
    options = ["--set", "prompts=-999", "--model", "tiny"]
    assert command(["confirm", REFERENCE, *options]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "chess"], "unknown study 'chess'"),
        (["tiny", "tests.toy:STUDY"], "study toy has no part on language models"),
        (["tiny", REFERENCE, "--seeds", "0"], "--seeds 0"),
        (["tiny", REFERENCE, "--json", "/"], "--json /"),
        (["tiny", REFERENCE, "--preset", "huge"], "unknown preset 'huge'"),
        (["tiny", REFERENCE, "--set", "colour=red"], "unknown config key 'colour'"),
        (["tiny", REFERENCE, "--device", "tpu"], "unknown device 'tpu'"),
        (
            ["tiny", REFERENCE, "--figures"],
            "--figures and --report go with trained runs",
        ),
        ([], "--model: expected one argument"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert message in written.err
