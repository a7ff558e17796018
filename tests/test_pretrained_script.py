"""Claims about language models are judged by `confirm --model`, or by the script."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from circuits.claims import Claim, Null
from circuits.command.cli import main as command
from circuits.conditions import Mean
from circuits.datasets.dataset import read_dataset
from circuits.datasets.schema import Schema
from circuits.lab import LanguageLab
from circuits.models import open as opening
from circuits.study import LanguagePart, find
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

    def stored(self) -> list[float]:
        """Every name of the data, by its length; kept."""
        made = self.keeper.kept(
            "lengths",
            lambda _folder: {
                "n": torch.tensor([float(len(r.name)) for r in self.rows])
            },
        )
        return made["n"].tolist()

    @property
    def rows(self) -> tuple["Named", ...]:
        return self.data.rows if self.data else ()


@dataclass(frozen=True)
class Named:
    """A row of the toy study's data."""

    name: str


CLAIM = Claim(
    "toy.llm.size",
    "The model has prompts.",
    source="Section 6",
    kind="signal",
    conditions=(Mean("size", "> 0.5", lambda lab: lab.size()),),
    nulls=(Null("random twin", on=lambda lab: lab.twin()),),
    headline="Language models",
)
STORED = replace(
    CLAIM,
    id="toy.llm.stored",
    conditions=(Mean("length", ">= 1", lambda lab: lab.stored()),),
    nulls=(Null("nothing", measure=lambda _lab: [0.0]),),
)
STUDY = replace(
    toy.STUDY,
    language=LanguagePart(
        settings=Settings,
        presets={"quick": Preset(Settings(), n_seeds=3, cost="a blink")},
        claims=lambda _settings: [CLAIM],
        lab=ToyLanguageLab,
        data=Schema(Named, None, lambda rows: [{"prompt": r.name} for r in rows]),
    ),
)


def lengths(lab: ToyLanguageLab) -> Figure:
    """How long the names are.

    The paper has none.
    """
    figure = Figure()
    figure.add_subplot().plot(lab.stored(), label="length")
    return figure


OTHER = replace(
    STUDY,
    language=replace(
        STUDY.language,
        claims=lambda _settings: [CLAIM, STORED],
        figures_part={"llm-lengths": lengths},
    ),
)
ROWS = "tests.test_pretrained_script:OTHER"
REFERENCE = "tests.test_pretrained_script:STUDY"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Runs are stored in the folder that one is in.
    monkeypatch.chdir(tmp_path)
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


def test_rows_of_ones_own_are_judged_stored_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, file = tmp_path / "names.jsonl", tmp_path / "verdicts.json"
    data.write_text(
        "".join(json.dumps({"who": n}) + "\n" for n in ("Ada", "Eva", "Bob"))
    )
    given = ["--data", str(data), "--columns", "who=name", "--json", str(file)]
    asked = ["confirm", ROWS, "--model", "tiny", "--dtype", "fp32", *given]
    assert command(asked) == 0
    written = json.loads(file.read_text())
    assert written["verdicts"][1]["values"] == [3.0, 3.0, 3.0]
    assert written["data"]["name"] == "names.jsonl"
    assert f"--data {data} --columns who=name" in written["command"]
    (run,) = (tmp_path / "runs").iterdir()
    assert [f.name for f in run.glob("*.safetensors")] == ["lengths.safetensors"]
    assert command(["verify", str(run)]) == 0
    assert "1 measurements as they were written, 0 under way" in capsys.readouterr().out
    assert command(asked) == 0
    assert len(list((tmp_path / "runs").iterdir())) == 1
    # Other rows are another run.
    data.write_text('{"who": "Cleo"}\n')
    command(asked)
    assert len(list((tmp_path / "runs").iterdir())) == 2


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    """The options that give three names."""
    data = tmp_path / "names.jsonl"
    data.write_text(
        "".join(json.dumps({"name": n}) + "\n" for n in ("Alan", "Eva", "Boris"))
    )
    return ["--model", "tiny", "--data", str(data)]


def test_what_was_measured_is_drawn_without_the_model(
    names: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = tmp_path / "page.html"
    extra = ["--figures", "--report", str(page)]
    assert command(["confirm", ROWS, *names, *extra]) == 0
    said = capsys.readouterr().out.splitlines()
    (run,) = (tmp_path / "runs").iterdir()
    stored = f"runs/{run.name}"
    assert f"claim ID {stored}" in " ".join(said)
    assert said[-2:] == [f"{stored}/figures/llm-lengths.png", str(page)]
    first = page.read_text()
    monkeypatch.setattr(opening, "open", lambda *_args, **_options: pytest.fail("open"))
    (tmp_path / "names.jsonl").unlink()
    assert command(["figure", "llm-lengths", stored, "-o", "x.svg"]) == 0
    assert "toy: model; preset quick; seeds 301, 302, 303" in Path("x.svg").read_text()
    words = " ".join(Path("x.txt").read_text().split())
    assert words.startswith("How long the names are. The paper has none. (toy llm-")
    assert command(["figure", "all", stored, "-o", "drawn", "--style", "dark"]) == 0
    assert Path("drawn/llm-lengths.png").is_file()
    assert command(["report", stored, "-o", str(page)]) == 0
    for part in ("llm-lengths", "The model has prompts.", "0,length,0,4", stored):
        assert part in page.read_text(), part
        assert part in first, part
    assert command(["claim", "toy.llm.stored", stored]) == 0
    assert "by replicate: 4, 3, 5" in capsys.readouterr().out
    assert not (Path(stored) / "verdicts-of-some.json").exists()
    command(["list", ROWS])
    assert "llm-lengths: How long the names are.\n" in capsys.readouterr().out


def test_what_was_not_measured_is_not_drawn(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: str) -> str:
        assert command(arguments) == 2
        written = capsys.readouterr()
        assert written.err.count("\n") == 1
        return written.err

    only = ["--only", "toy.llm.size"]
    assert command(["confirm", ROWS, *names, *only]) == 0
    capsys.readouterr()
    (run,) = (tmp_path / "runs").iterdir()
    stored = str(run)
    words = refused("figure", "llm-lengths", stored, "-o", "x.png")
    assert "'lengths' was not measured there" in words
    words = refused("figure", "loss", stored, "-o", "x.png")
    assert "unknown figure of toy 'loss'; choose from: llm-lengths, all" in words
    assert "not judged as a whole" in refused("report", stored, "-o", "x.html")
    assert "not judged as a whole" in refused("claim", "toy.llm.stored", stored)
    assert command(["claim", "toy.llm.size", stored]) == 0
    assert "toy.llm.size" in capsys.readouterr().out
    assert "leave --only" in refused(
        "confirm", ROWS, *names, *only, "--report", "x.html"
    )
    (run / "asked.json").write_text('{"preset": "quick", "seeds": ["x"]}')
    assert "seeds" in refused("figure", "all", stored, "-o", "drawn")
    (run / "asked.json").unlink()
    assert "nothing was judged" in refused("figure", "all", stored, "-o", "drawn")
    assert command(["confirm", REFERENCE, *names]) == 0
    (plain,) = set((tmp_path / "runs").iterdir()) - {run}
    words = refused("figure", "all", str(plain), "-o", "drawn")
    assert "toy draws nothing of a language model" in words


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ('{"name": "Ada"}\n{"name": 3}\n', [], "line 2: field 'name' is 3; it must be"),
        ('{"who": "Ada"}\n', [], "line 1: field 'name' is missing"),
        ("", [], "names.jsonl: it holds no row"),
        ('{"name": "Ada"}\n', ["--columns", "a=b"], "unknown field 'b'"),
        ('{"name": "Ada"}\n', ["lego"], "--data belongs to one study"),
    ],
)
def test_bad_rows_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    options: list[str],
    message: str,
) -> None:
    data = tmp_path / "names.jsonl"
    data.write_text(text)
    given = ["--model", "tiny", "--data", str(data)]
    assert command(["confirm", ROWS, *options, *given]) == 2
    written = capsys.readouterr()
    assert written.err.count("\n") == 1
    assert message in written.err


def test_rows_are_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    assert command(["export", "bridge", "-o", str(file)]) == 0
    assert "96 rows" in capsys.readouterr().out
    assert len(read_dataset(file)) == 96
    assert command(["export", "bridge", "--form", "study", "-o", str(file)]) == 0
    schema = find("bridge").needs_language().schema
    assert schema.read(file).rows == schema.own().rows
    assert command(["export", "lego", "-o", str(file)]) == 2
    assert "give --model MODEL" in capsys.readouterr().err
    options = ["--model", "tiny", "--form", "study"]
    assert command(["export", "lego", *options, "-o", str(file)]) == 0
    lego = find("lego").needs_language().schema
    assert {row.group for row in lego.read(file).rows} == {"C3", "S3"}
    assert command(["export", "lego", "--data", str(file), "-o", str(file)]) == 0
    assert len(read_dataset(file)) > 10


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
        (["tiny", REFERENCE, "--dtype", "int8"], "unknown dtype 'int8'"),
        (["tiny", REFERENCE, "--columns", "a=b"], "--columns goes with --data"),
        (["tiny", REFERENCE, "--data", "none.jsonl"], "there is no such file"),
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
