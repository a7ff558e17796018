"""A study's own rows: types, what is missing, and where."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from circuits.datasets.dataset import dataset_of
from circuits.datasets.schema import Schema
from circuits.study import STUDIES, find
from trained.config import require
from trained.errors import BadInput


@dataclass(frozen=True)
class Apple:
    name: str
    kind: Literal["red", "green"]
    weight: float
    seeds: int = 0
    owners: tuple[str, ...] = ()
    prices: dict[str, float] | None = None

    def __post_init__(self) -> None:
        require(self.weight > 0, "field 'weight' must be positive")


SCHEMA = Schema(Apple, None, lambda rows: [{"prompt": row.name} for row in rows])
GOOD = {"name": "Elstar", "kind": "red", "weight": 1, "owners": ["Ada"]}


def read(folder: Path, *rows: object, columns: tuple[str, ...] = ()):
    file = folder / "apples.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SCHEMA.read(file, columns)


def test_a_row_by_hand(tmp_path: Path) -> None:
    found = read(tmp_path, {**GOOD, "prices": {"today": 2}, "theirs": None})
    assert found.rows == (Apple("Elstar", "red", 1.0, 0, ("Ada",), {"today": 2.0}),)
    assert found.sha256 == read(tmp_path, {**GOOD, "prices": {"today": 2}}).sha256
    assert found.sha256 != read(tmp_path, GOOD).sha256


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "field 'name' is 3; it must be a text"),
        ({"name": ""}, "field 'name' is empty"),
        ({"kind": "blue"}, "field 'kind' is \"blue\"; choose from: red, green"),
        ({"weight": "1"}, "field 'weight' is \"1\"; it must be a number"),
        ({"weight": True}, "field 'weight' is True; it must be a number"),
        ({"weight": -1}, "field 'weight' must be positive"),
        ({"weight": None}, "field 'weight' is missing; fields are name, kind, weight"),
        ({"seeds": 1.5}, "field 'seeds' is 1.5; it must be a whole number"),
        ({"owners": "Ada"}, "field 'owners' is \"Ada\"; it must be a list"),
        ({"owners": [1]}, "field 'owners' is 1; it must be a text"),
        ({"prices": [1]}, "field 'prices' is of type list; it must be an object"),
    ],
)
def test_what_is_wrong_names_the_line_and_the_field(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    with pytest.raises(BadInput) as refused:
        read(tmp_path, GOOD, {**GOOD, **change})
    assert str(refused.value).startswith(f"apples.jsonl: line 2: {message}")


def test_columns_of_ones_own(tmp_path: Path) -> None:
    theirs = {**GOOD, "weights": 2}
    del theirs["weight"]
    with pytest.raises(BadInput, match="is it --columns weights=weight"):
        read(tmp_path, theirs)
    assert read(tmp_path, theirs, columns=("weights=weight",)).rows[0].weight == 2
    with pytest.raises(BadInput, match="unknown field 'mass'; choose from: name, kind"):
        read(tmp_path, theirs, columns=("weights=mass",))


def test_tables_hold_json_where_no_text_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "apples.csv"
    file.write_text('name,kind,weight,owners\n"12",red,1.5,"[""Ada""]"\n')
    assert SCHEMA.read(file).rows == (Apple("12", "red", 1.5, 0, ("Ada",)),)
    file.write_text("name,kind,weight\nx,red,heavy\n")
    with pytest.raises(BadInput, match=r"line 2: field 'weight' is .*; write it"):
        SCHEMA.read(file)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", "nonsense"])
def test_what_is_no_list_of_rows_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "apples.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"apples\.json"):
        SCHEMA.read(file)
    with pytest.raises(BadInput, match="no such file"):
        SCHEMA.read(tmp_path / "none.json")


@pytest.mark.parametrize("name", STUDIES)
def test_the_studies_own_rows_are_such_files(name: str) -> None:
    schema = find(name).needs_language().schema
    own = schema.own()
    assert (own is None) == (name in ("symbols", "lego"))
    if own is not None:
        assert len(dataset_of(schema.prompts(own.rows))) >= len(own.rows)
