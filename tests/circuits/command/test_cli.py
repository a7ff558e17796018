"""The command: exit codes, what is printed and what is left on disk."""

import json
from pathlib import Path

import pytest

from circuits import progress
from circuits.command.cli import main

from .conftest import TOY, contents

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_train_prints_the_path_of_the_run_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", TOY, "--out", "here", "--jobs", "1", "--seeds", "3"]) == 0
    written = capsys.readouterr()
    path = Path(written.out.strip())
    assert written.out == f"{path}\n"
    assert path.parent == Path("here")
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["seeds"] == [301, 302, 303]
    assert (path / "net" / "arm.json").is_file()
    assert (path / "twin" / "arm.json").is_file()


def test_probe_judges_a_trained_run(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--json", "deep/verdicts.json"]) == 0
    assert "paper score: 100% confirmed" in capsys.readouterr().out
    written = json.loads(Path("deep/verdicts.json").read_text())
    assert written["study"] == "toy"
    assert [v["passed"] for v in written["verdicts"]] == [True, False]


def test_confirm_is_train_then_probe(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--json", "probed.json"]) == 0
    assert main(["confirm", TOY, "--json", "confirmed.json", "--jobs", "1"]) == 0
    probed, confirmed = (
        json.loads(Path(name).read_text()) for name in ("probed.json", "confirmed.json")
    )
    for verdict in (*confirmed["verdicts"], *probed["verdicts"]):
        del verdict["seconds"]
    assert confirmed["verdicts"] == probed["verdicts"]
    assert toy_run.name in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize(
    ("study", "code", "word"),
    [("STUDY", 0, "confirmed"), ("REFUTED", 1, "refuted"), ("FOOLED", 1, "inconcl")],
)
def test_the_exit_code_says_whether_the_papers_claims_are_confirmed(
    capsys: pytest.CaptureFixture[str], study: str, code: int, word: str
) -> None:
    assert main(["confirm", f"tests.toy:{study}", "--jobs", "1"]) == code
    assert word in capsys.readouterr().out


def test_a_part_of_the_claims_is_judged_on_demand(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--only", "toy.neg*"]) == 0
    written = capsys.readouterr().out
    assert "negative" in written
    assert "size" not in written
    assert main(["probe", str(toy_run), "--only", "toy.x"]) == 2
    assert "unknown claims 'toy.x'; choose from: toy.size" in capsys.readouterr().err


def test_several_studies_give_a_list() -> None:
    studies = ["tests.toy:OTHER", TOY]
    assert main(["confirm", *studies, "--json", "all.json", "--jobs", "1"]) == 0
    assert [o["study"] for o in json.loads(Path("all.json").read_text())] == [
        "other",
        "toy",
    ]


def test_several_studies_end_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "tests.toy:OTHER", TOY, "--jobs", "1"]) == 0
    *_, heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["study", "score", "confirmed"]
    assert (first.split()[0], second.split()[:2]) == ("other", ["toy", "100%"])


def test_the_report_of_a_confirmation_is_the_last_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["confirm", TOY, "--jobs", "1", "--report", "deep/page.html"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "deep/page.html"
    assert "toy.size" in Path("deep/page.html").read_text()


@pytest.mark.slow
def test_a_real_study_is_trained_judged_and_reported_by_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As `make demo` does it; its deep linear networks take a second."""
    small = ["--set", "parts=linear", "--set", "linear.width=32", "--seeds", "2"]
    options = ["--device", "cpu", "--jobs", "2", "--report", "page.html"]
    assert main(["confirm", "analogy", *small, *options, "--json", "two.json"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "page.html"
    page = Path("page.html").read_text()
    assert all(part in page for part in ("analogy.depth.linear.two", "<svg", "<figure"))
    (run,) = Path("runs").iterdir()
    assert main(["probe", str(run), "--json", "one.json"]) == 1
    one, two = (json.loads(Path(f"{name}.json").read_text()) for name in ("one", "two"))
    for verdict in (*one["verdicts"], *two["verdicts"]):
        verdict.pop("seconds")
    assert one["verdicts"] == two["verdicts"]
    words = {verdict["verdict"] for verdict in two["verdicts"]}
    assert "not tested" in words != {"not tested"}


def test_words_leave_standard_output_to_the_json(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--json", "-"]) == 0
    written = capsys.readouterr()
    assert json.loads(written.out)["study"] == "toy"
    assert "paper score" in written.err


def test_one_claim_is_told_whole(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", str(toy_run), "--json", "v.json"]) == 0
    capsys.readouterr()
    for target in (str(toy_run), "v.json"):
        assert main(["claim", "toy.size", target]) == 0
        words = capsys.readouterr().out
        for part in ("toy.size: confirmed", "by replicate", "nulls", "repeat: "):
            assert part in words
        assert main(["claim", "toy.smell", target]) == 2
        assert "unknown claim" in capsys.readouterr().err


def test_all_figures_are_drawn_at_once(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "all", str(toy_run), "-o", "drawn"]) == 0
    files = capsys.readouterr().out.splitlines()
    assert files
    assert all(Path(file).is_file() for file in files)
    assert main(["figure", "loss", str(toy_run), "-o", "LOSS.PNG"]) == 0


def test_a_group_of_the_config_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", TOY, "--jobs", "1", "--set", "head.depth=2"]) == 0
    manifest = Path(capsys.readouterr().out.strip()) / "manifest.json"
    assert json.loads(manifest.read_text())["config"]["head"] == {"depth": 2}


def test_the_same_request_reuses_the_trained_run(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(toy_run)
    assert main(["train", TOY, "--jobs", "1"]) == 0
    written = capsys.readouterr()
    assert written.out.strip() == str(toy_run)
    assert written.err == ""
    assert contents(toy_run) == before


def test_another_request_gets_another_directory(
    toy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", TOY, "--jobs", "1", "--set", "width=5"]) == 0
    other = Path(capsys.readouterr().out.strip())
    assert other != toy_run
    assert json.loads((other / "manifest.json").read_text())["config"]["width"] == 5
    assert set(toy_run.parent.iterdir()) == {toy_run, other}


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_figure_is_drawn_from_a_run(
    toy_run: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    file = Path("figures", f"loss.{suffix}")
    assert main(["figure", "loss", str(toy_run), "-o", str(file)]) == 0
    assert capsys.readouterr().out.strip() == str(file)
    assert file.stat().st_size > 500


def test_confirm_can_draw_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", TOY, "--figures", "--jobs", "1"]) == 0
    file = Path(capsys.readouterr().out.splitlines()[-1])
    assert file.name == "loss.png"
    assert file.is_file()


def test_progress_is_told_in_plain_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress._LINE, "_refresh", 0.001)
    main(["train", TOY, "--jobs", "1"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("toy: training 0 of 2 arms, 0 s so far")


DIVERGING = "tests.faults.diverging:STUDY"


def test_a_seed_that_fails_is_named_and_the_other_studies_are_judged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--jobs", "1", "--seeds", "0,1,4", "--json", "x.json"]
    assert main(["confirm", DIVERGING, TOY, *options]) == 3
    said = capsys.readouterr().err
    last = said.splitlines()[-1]
    assert "Traceback" not in said
    assert last.startswith("reasonscope: not trained: net: seed 1: its loss is not")
    assert "repeat to take these up again" in last
    assert json.loads(Path("x.json").read_text())["study"] == "toy"
    (run,) = Path("runs").glob("diverging-*")
    assert json.loads((run / "net" / "arm.json").read_text())["seeds"] == [0, 4]
    assert main(["probe", str(run)]) == 2
    assert "is not trained yet: net" in capsys.readouterr().err
    assert main(["probe", str(run), "--partial", "--json", "y.json"]) in (0, 1)
    assert "arm net lacks seed 1: its loss is not finite" in Path("y.json").read_text()
    assert main(["train", DIVERGING, "--jobs", "1", "--seeds", "0,1,4"]) == 3


def test_a_stored_verdict_is_told_from_any_directory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["claim", "lego.conc.phases", "results/lego.json"]) in (0, 1)
    assert "lego.conc.phases: " in capsys.readouterr().out
