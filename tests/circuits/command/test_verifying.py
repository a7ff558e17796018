"""Is a run whole, what made it, and where do two verdict files differ?"""

import json
import shutil
from pathlib import Path

import pytest

from circuits.command.cli import main
from circuits.confirm import confirm_run, open_lab
from circuits.study import Request
from circuits.training import code_hash, prepare, train_run
from tests import toy
from trained.store import Run

TOY = "tests.toy:STUDY"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    started = prepare(Request(TOY, device="cpu", out=tmp_path / "runs"))
    train_run(started)
    return started


def verify(run: Run, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["verify", str(run.path)])
    written = capsys.readouterr()
    return code, written.out + written.err


def test_a_whole_run_says_what_made_it(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = verify(run, capsys)
    assert code == 0
    assert "whole, 2 arms, 4 files" in text
    assert "made by commit" in text
    assert "claims: as before training" in text


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda p: flip(p / "net/weights-3.safetensors"), "was changed since"),
        (lambda p: (p / "twin/metrics.safetensors").unlink(), "is missing"),
        (lambda p: change(p / "manifest.json", seeds=[0, 1]), "has the seeds"),
        (lambda p: change(p / "manifest.json", schema=99), "schema 99"),
        (
            lambda p: change(p / "net/arm.json", files={}),
            "is not in the record of arm net",
        ),
        (lambda p: (p / "net/arm.json").unlink(), "unknown finished arm 'net'"),
    ],
)
def test_whatever_is_off_is_one_line_and_exit_code_two(
    run: Run, capsys: pytest.CaptureFixture[str], harm: object, message: str
) -> None:
    harm(run.path)  # type: ignore[operator]
    figure = ["figure", "loss", str(run.path), "-o", str(run.path / "x.png")]
    for command in (["verify", str(run.path)], ["probe", str(run.path)], figure):
        assert main(command) == 2
        written = capsys.readouterr()
        assert written.out == ""
        assert written.err.count("\n") == 1
    assert message in written.err or "not trained yet" in written.err


def test_an_expectation_changed_after_training_is_seen(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not confirm_run(run).as_dict()["claims_changed_since_training"]
    lab = open_lab(run)
    changed = lab.other(study=toy.REFUTED).confirm().as_dict()
    assert changed["claims_changed_since_training"]
    monkeypatch.setattr(toy, "STUDY", toy.REFUTED)
    assert "changed since they were before training" in verify(run, capsys)[1]


def test_a_changed_line_of_judging_code_is_seen(run: Run, tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    for package in ("probes", "trained", "circuits"):
        shutil.copytree(
            root / package,
            tmp_path / "code" / package,
            ignore=shutil.ignore_patterns("checkpoints", "__pycache__"),
        )
    before = code_hash(toy.STUDY, tmp_path / "code")
    assert confirm_run(run).as_dict()["code_sha256"] == before
    with (tmp_path / "code/circuits/conditions.py").open("a") as file:
        file.write("# a line\n")
    assert code_hash(toy.STUDY, tmp_path / "code") != before


def test_diff_names_each_claim_that_differs(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    verdicts = confirm_run(run).as_dict()
    first.write_text(json.dumps(verdicts))
    assert main(["diff", str(first), str(first)]) == 0
    assert "the same verdicts" in capsys.readouterr().out
    verdicts["verdicts"][0]["verdict"] = "refuted"
    verdicts["verdicts"].pop()
    second.write_text(json.dumps(verdicts))
    assert main(["diff", str(first), str(second)]) == 1
    text = capsys.readouterr().out
    assert "toy.size: confirmed" in text
    assert "-> refuted" in text
    assert "toy.negative: only in A" in text
    second.write_text("{}")
    assert main(["diff", str(first), str(second)]) == 2
    assert "is not a verdict file" in capsys.readouterr().err


def test_json_means_the_same_for_verify_and_diff(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(run.path), "--json", "-"]) == 0
    written = capsys.readouterr()
    assert json.loads(written.out)["whole"] is True
    assert "whole, 2 arms" in written.err
    file = tmp_path / "verdicts.json"
    assert main(["probe", str(run.path), "--json", str(file)]) in (0, 1)
    assert main(["diff", str(file), str(file), "--json", str(tmp_path / "d.json")]) == 0
    told = json.loads((tmp_path / "d.json").read_text())
    assert told == {"same": True, "differences": []}
