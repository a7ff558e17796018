"""A grid of configurations: every cell judged, refused ones named, nothing twice."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import circuits.sweep
from circuits.command.cli import main
from circuits.study import Request
from circuits.sweep import claims_of, grid_of, phase_diagram, sweep
from trained.errors import BadInput, Incomplete
from trained.store import Run

TOY = "tests.toy:STUDY"


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (["width"], "give key=a,b,c"),
        (["width="], "give key=a,b,c"),
        (["width=2", "width=3"], "each key once"),
        (["width=2,2"], "a value twice"),
        (["a=" + ",".join(map(str, range(1001)))], "1001 cells"),
    ],
)
def test_a_grid_that_is_none_is_refused(grid: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        grid_of(grid)


def test_every_cell_is_judged_and_a_refused_one_is_named(tmp_path: Path) -> None:
    grid = {"width": ("2", "0", "4")}
    request = Request(TOY, seeds=(1, 2, 3), device="cpu", out=tmp_path, jobs=1)
    cells = list(sweep(request, grid))
    assert [bool(cell.done) for cell in cells] == [True, False, True]
    assert "width" in cells[1].refused
    assert claims_of(cells) == ["toy.size", "toy.negative"]
    values, words = phase_diagram("toy.size", cells, grid)
    assert values.axes == ("width", "value")
    assert math.isnan(values.values[1, 0])
    assert words[1] == ["refused"]
    assert words[0][0] == cells[0].verdict("toy.size").word  # type: ignore[union-attr]
    runs = sorted(tmp_path.iterdir())
    list(sweep(request, grid))
    assert sorted(tmp_path.iterdir()) == runs


def test_where_no_cell_can_be_run_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown config key 'colour'"):
        list(sweep(Request(TOY, out=tmp_path), {"colour": ("1", "2")}))
    assert list(tmp_path.iterdir()) == []


def test_the_verb_prints_writes_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, folder = tmp_path / "sweep.json", tmp_path / "maps"
    options = ["--grid", "width=2,4", "--only", "toy.size", "--seeds", "3"]
    places = ["--json", str(file), "-o", str(folder), "--out", str(tmp_path / "runs")]
    assert main(["sweep", TOY, *options, *places, "--jobs", "1"]) == 0
    written = capsys.readouterr()
    assert "toy.size" in written.out
    assert "width=4: 1 confirmed" in written.err
    cells = json.loads(file.read_text())["cells"]
    assert [cell["setting"] for cell in cells] == [{"width": "2"}, {"width": "4"}]
    assert (folder / "toy.size.png").is_file()


def test_a_cell_that_fails_costs_that_cell_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = circuits.sweep.train_run

    def sometimes(run: Run, **options: Any) -> None:
        if run.manifest["config"]["width"] == 2:
            raise Incomplete("not trained: net: the disk is full")
        train(run, **options)

    monkeypatch.setattr(circuits.sweep, "train_run", sometimes)
    file = tmp_path / "sweep.json"
    options = ["--grid", "width=2,4", "--json", str(file), "--out", str(tmp_path / "r")]
    assert main(["sweep", TOY, *options, "--jobs", "1"]) == 3
    assert "the disk is full" in capsys.readouterr().err
    first, second = json.loads(file.read_text())["cells"]
    assert (first["failed"], first["confirmation"]) == (
        "not trained: net: the disk is full",
        None,
    )
    assert second["confirmation"]["study"] == "toy"
