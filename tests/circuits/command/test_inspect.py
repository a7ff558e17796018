"""`reasonscope inspect` from end to end."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from circuits.command.cli import main
from circuits.inspection.request import STYLES
from circuits.models import open as pretrained
from probes import figures
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
    names = ("lens", "answer", "logit", "attention", "heads")
    assert figures == {f"{name}.png" for name in names}
    asked = {"backend": "hf", "device": "auto", "dtype": "float32"}
    assert opened == [{"name": "tiny", "adapter": None, **asked}]


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("more", [[], ["--generate", "2"], ["--against", "other"]])
def test_figures_are_drawn_in_a_style(more: list[str], tmp_path: Path) -> None:
    for style in STYLES:
        asked = ["inspect", "tiny", "abcde", *more, "--style", style]
        assert main([*asked, "-o", str(tmp_path / style)]) == 0
    drawn = sorted(file.name for file in (tmp_path / "paper").glob("*.png"))
    assert drawn
    for name in drawn:
        corners = {style: imread(tmp_path / style / name)[0, 0] for style in STYLES}
        assert corners["paper"].min() == corners["slides"].min() == 1
        assert corners["dark"][:3].max() < 0.2


def test_the_styles_are_those_of_the_figures() -> None:
    assert tuple(figures.STYLES) == STYLES


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
        (["--signal", "alignment"], "--role NAME=PHRASE"),
        (["--dtype", "int4"], "unknown dtype 'int4'"),
        (["--role", "subject"], "--role subject: give NAME=PHRASE"),
        (["--role", "x=zz"], "field 'roles'"),
        (["--positions", "9"], "unknown position '[9]'; choose from: 0 to 4"),
        (["--positions", ","], "--positions: name roles"),
        (["--columns", "a=prompt"], "name its --row"),
        (["--row", "1"], "abcde"),
        (["--row", "1", "--answer", "f"], "leave out --answer"),
        (["--device", "moon"], "'moon'; choose from"),
        (["--style", "loud"], "unknown style 'loud'; choose from: paper, slides, dark"),
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


@pytest.mark.usefixtures("opened")
def test_a_phrase_that_occurs_twice_is_given_by_its_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["inspect", "tiny", "abcab", "--json", "-", "--role"]
    assert main([*asked, "second=ab"]) == 2
    assert "more than once; give [start, end]" in capsys.readouterr().err
    assert main([*asked, "second=[3,5]"]) == 0
    assert json.loads(capsys.readouterr().out)["roles"] == {"second": [3, 4]}


@pytest.mark.usefixtures("opened")
def test_a_row_of_a_dataset_is_a_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"question": "abcde", "answer": ["fg", "h"], "roles": {"one": "b"}}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**row, "question": "vbxyz"}) + "\n" + json.dumps(row))
    renamed = ["--columns", "question=prompt", "--json", "-"]
    assert main(["inspect", "tiny", str(file), "--row", "2", *renamed]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt"] == "abcde"
    assert found["roles"] == {"one": [1]}
    assert found["answers"]["labels"]["answer"] == ["fg", "h"]
    assert main(["inspect", "tiny", str(file), "--row", "3", *renamed]) == 2
    assert "choose from: 1 to 2 of rows.jsonl" in capsys.readouterr().err


@pytest.mark.usefixtures("opened")
def test_a_corrupt_answer_is_what_is_patched_against(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["inspect", "tiny", "abcde", "--answer", "f", "--signal", "patching"]
    asked += ["--corrupt", "abIde", "--json", "-"]
    found = []
    for wrong in ("g", "h"):
        assert main([*asked, "--corrupt-answer", wrong]) == 0
        found.append(json.loads(capsys.readouterr().out)["patching"]["values"])
    assert found[0] != found[1]
    assert main([*asked, "--corrupt-answer", "g", "--positions", "2,last"]) == 0
    some = json.loads(capsys.readouterr().out)["patching"]
    assert some["labels"]["position"] == [2, "last"]
    whole = [[row[2], row[4]] for row in found[0]]
    assert some["values"] == [pytest.approx(row, abs=1e-5) for row in whole]


@pytest.mark.usefixtures("opened")
def test_two_models_are_set_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    asked = ["inspect", "tiny", "abcde", "--against", "other", "-o", str(out)]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "tiny against other" in said
    assert "change: other minus tiny" in said
    found = json.loads((out / "inspect.json").read_text())
    assert found["models"] == ["tiny", "other"]
    assert found["change"] == "other minus tiny"
    assert set(found["differences"]["rank"]["values"]) == {0.0}
    assert {f.name for f in out.glob("*.png")} == {
        *("answer.png", "logit.png", "attention.png")
    }
