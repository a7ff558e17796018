"""The table of measures counts what it says."""

import ast
from pathlib import Path

import pytest

import reasonscope as rs
from scripts import measures


def test_names_that_the_face_lacks_cost_an_import_line() -> None:
    assert measures.import_lines("rs.lens(model, clean)") == 1
    assert measures.import_lines("rs.telescope(rs.lens)") == 2
    assert {measures.import_lines(code) for code in measures.ERRANDS.values()} == {1}


def test_a_walk_has_the_files_that_judging_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = rs.confirm("tests.toy:STUDY").run
    assert run is not None
    walked = measures.walk(str(run.path), "toy.size")
    assert {"circuits/claims.py", "circuits/lab.py", "trained/store.py"} <= walked
    assert "trained/trainer.py" not in walked
    assert not any(file.startswith("circuits/studies") for file in walked)


def test_strings_are_told_from_parts_of_f_strings() -> None:
    tree = ast.parse('a = "lego.one"; b = f"lego.{a}"')
    assert list(measures._texts(tree)) == ["lego.one"]


def test_no_claim_is_written_twice() -> None:
    assert measures.repeated_ids() == set()


def test_files_and_lines_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\n")
    (tmp_path / "b.py").write_text("")
    assert measures.size(sorted(tmp_path.iterdir())) == (2, 2)
