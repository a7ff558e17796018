"""The script on pretrained models asks, refuses and judges as the command does."""

import json
from pathlib import Path

import pytest

from circuits.claims import Claim, Control, Observed
from circuits.command.request import guarded
from circuits.models import open as pretrained
from circuits.study import STUDIES, Study, find
from scripts.pretrained import main
from tests.word_models import word_model

CLAIMS = (
    Claim("toy.llm.sure", "It holds.", "ours", "signal", "> 0", Control("null", "< 1")),
    Claim(
        "toy.llm.open",
        "So?",
        "ours",
        "signal",
        "> 1",
        Control("null", "< 1"),
        gated=False,
    ),
)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Every study measures these values on a tiny model."""
    values = {"toy.llm.sure": 0.5, "toy.llm.open": 0.5}

    def observe(_model: object, _twin: object, seeds: tuple[int, ...]) -> object:
        return {k: Observed.of([v] * len(seeds), [0.0]) for k, v in values.items()}

    monkeypatch.setattr(Study, "claims_pretrained", property(lambda _self: CLAIMS))
    monkeypatch.setattr(Study, "observe_pretrained", property(lambda _self: observe))
    monkeypatch.setattr(
        pretrained, "open", lambda *_args, **_options: word_model(["a"])
    )
    return values


@pytest.mark.usefixtures("measured")
def test_verdicts_are_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verdicts.json"
    options = ["--seeds", "2", "--json", str(file), "--out", str(tmp_path / "out")]
    assert main(["tiny", "recall", "lego", *options]) == 0
    assert "recall on model, 2 seeds" in capsys.readouterr().out
    first, second = json.loads(file.read_text())
    assert (first["study"], second["study"]) == ("recall", "lego")
    assert (first["schema"], first["preset"], first["seeds"]) == (
        1,
        "pretrained",
        [0, 1],
    )
    assert first["config"] == {"model": "model"}
    assert [v["passed"] for v in first["verdicts"]] == [True, False]
    alone = json.loads((tmp_path / "out" / "lego-pretrained.json").read_text())
    assert alone["verdicts"] == second["verdicts"]


def test_a_gated_claim_that_fails_gives_exit_code_one(
    measured: dict[str, float],
) -> None:
    measured["toy.llm.sure"] = -1.0
    assert main(["tiny", "symbols", "--seeds", "1"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["smollm2", "chess"],
        ["smollm2", "--seeds", "0"],
        ["smollm2", "--json", "/"],
        [],
        [__file__, "recall"],
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: main(arguments)) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1


@pytest.mark.parametrize(
    "slug", [slug for slug in STUDIES if Study(slug).has_pretrained]
)
def test_claims_about_language_models_carry_their_studys_name(slug: str) -> None:
    ids = [claim.id for claim in find(slug).claims_pretrained]
    assert all(name.startswith(f"{slug}.llm.") for name in ids)
    assert len(set(ids)) == len(ids)
