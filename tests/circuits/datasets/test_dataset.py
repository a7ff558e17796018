"""Rows are read as they are meant, and refused in one line that names the place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits.datasets import files
from circuits.datasets.dataset import dataset_of, read_dataset
from circuits.datasets.row import MOST_CHARACTERS
from trained.errors import BadInput

ROW: dict[str, Any] = {
    "prompt": "The capital of France is",
    "answer": " Paris",
    "corrupt": "The capital of Italy is",
    "corrupt_answer": " Rome",
    "roles": {"country": "France", "relation": [4, 11]},
    "group": "europe",
}

Refused = Callable[[str | bytes, str], str]


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    """What is said of a file that is refused."""

    def check(content: str | bytes, name: str = "rows.jsonl") -> str:
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(BadInput) as error:
            read_dataset(file)
        said = str(error.value)
        assert "\n" not in said
        assert len(said) < 300
        return said

    return check


def written(folder: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    """The same rows in each of the formats."""
    file = folder / f"rows{suffix}"
    if suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == ".csv":
        import csv

        with file.open("w", newline="") as stream:
            table = csv.DictWriter(stream, list(rows[0]))
            table.writeheader()
            for row in rows:
                cells = {
                    name: json.dumps(value) if isinstance(value, dict | list) else value
                    for name, value in row.items()
                }
                table.writerow(cells)
    else:
        texts = [{**row, "roles": json.dumps(row["roles"])} for row in rows]
        pq.write_table(pa.Table.from_pylist(texts), file)
    return file


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    found = read_dataset(written(tmp_path, suffix, [ROW, {**ROW, "group": None}]))
    first, second = found.rows
    assert first.answers == (" Paris",)
    assert first.prompt[slice(*first.roles["country"])] == "France"
    assert first.prompt[slice(*first.roles["relation"])] == "capital"
    assert (first.group, second.group) == ("europe", None)
    assert (found.roles, found.groups) == (("country", "relation"), ("europe",))
    assert found.sha256 == dataset_of([ROW, {**ROW, "group": None}]).sha256


def test_parquet_may_have_structs_maps_and_lists(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a b", "answer": ["c", "d"], "roles": {"x": "a"}},
        {"prompt": "e f", "answer": ["g"], "roles": {"y": "f"}},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "structs.parquet")
    found = read_dataset(tmp_path / "structs.parquet").rows
    assert [list(row.roles) for row in found] == [["x"], ["y"]]
    assert found[0].answers == ("c", "d")
    kind = pa.map_(pa.string(), pa.string())
    maps = pa.table({"prompt": ["a b"], "roles": pa.array([[("x", "a")]], kind)})
    pq.write_table(maps, tmp_path / "maps.parquet")
    assert read_dataset(tmp_path / "maps.parquet").rows[0].roles == {"x": (0, 1)}


def test_columns_are_renamed(tmp_path: Path) -> None:
    rows = [{"question": "Who?", "target": "me", "id": 3}]
    file = written(tmp_path, ".jsonl", rows)
    found = read_dataset(file, ["question=prompt", "target=answer"]).rows[0]
    assert (found.prompt, found.answers) == ("Who?", ("me",))
    for columns, words in (
        (["question"], "give old=new"),
        (["question=text"], "unknown field 'text'; choose from: prompt, answer"),
        (["query=prompt"], "line 1: no column 'query' to rename; it has question"),
    ):
        with pytest.raises(BadInput, match=words):
            read_dataset(file, columns)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": None}, "field 'prompt' is missing; fields are prompt, answer"),
        ({"prompt": ""}, "field 'prompt' is empty"),
        ({"prompt": 3}, "field 'prompt' is 3; it must be a text"),
        ({"prompt": "a\0b"}, "field 'prompt' holds a NUL"),
        ({"prompt": "a\ud800b"}, "field 'prompt' holds half of a surrogate"),
        ({"prompt": "a" * (MOST_CHARACTERS + 1)}, "1000001 characters; at most"),
        ({"answer": 3.5}, "field 'answer' is 3.5; it must be a text"),
        ({"answer": []}, "field 'answer' is an empty list"),
        ({"answer": ["a", ["b"]]}, "field 'answer' is of type list"),
        ({"answer": [" a", " a"]}, "names an answer twice"),
        ({"corrupt": {"a": 1}}, "field 'corrupt' is of type dict"),
        ({"roles": ["France"]}, "field 'roles' is of type list; it maps names"),
        ({"roles": {"x": "Spain"}}, '"x" is "Spain", which is not in the prompt'),
        ({"roles": {"x": "a"}}, 'is "a", which is in the prompt more than once; give'),
        ({"roles": {"x": [4]}}, "give a phrase or [start, end]"),
        ({"roles": {"x": [4, True]}}, "give a phrase or [start, end]"),
        ({"roles": {"x": [4, 99]}}, "[4, 99]; the prompt has characters 0 to 24"),
        ({"roles": {"x": [4, 4]}}, "[4, 4]; the prompt"),
        ({"roles": {"last": "is"}}, "choose another name than first, last, changed"),
        ({"roles": {"": "is"}}, "field 'roles' is empty"),
        ({"roles": None, "role": {}}, 'unknown field "role"; choose from: prompt'),
        ({"group": 3}, "field 'group' is 3"),
    ],
)
def test_a_wrong_field_is_named(
    refused: Refused, change: dict[str, Any], words: str
) -> None:
    rows = [ROW, {**ROW, **change}]
    said = refused("".join(json.dumps(row) + "\n" for row in rows), "rows.jsonl")
    assert words in said
    assert said.startswith("rows.jsonl: line 2: ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it holds no row"),
        ("[1]\n", "line 1: a row is an object with fields"),
        ("{\n", "line 1: not JSON"),
        (b'{"prompt": "\xff"}\n', "line 1 is not UTF-8"),
        ('{"prompt": "a", "prompt": "b"}', "a name stands twice"),
        ('{"prompt": NaN}', "not JSON: NaN"),
        ("[" * 100_000, "line 1: not JSON"),
        ('{"prompt": ' + "9" * 5_000 + "}", "line 1: not JSON"),
        (b"\0" * 64, "line 1: not JSON"),
    ],
)
def test_hostile_json_is_one_line(
    refused: Refused, content: str | bytes, words: str
) -> None:
    assert words in refused(content, "rows.jsonl")


def test_a_line_without_end_is_not_read(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    said = refused('{"prompt": "a"}\n' + "x" * 1000, "rows.jsonl")
    assert "line 2 has more than 100 bytes" in said
    quoted = 'prompt\n"' + "x\n" * 100
    assert "line" in refused(quoted, "rows.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("prompt,answer\na,b,c\n", "line 2: more cells than the first line has"),
        ('prompt,roles\na,{"x"\n', "line 2: field 'roles': not JSON"),
        ("answer\nb\n", "line 2: field 'prompt' is missing"),
        ('prompt\n"a\n', "line 2: unexpected end of data"),
    ],
)
def test_a_broken_table_is_one_line(refused: Refused, content: str, words: str) -> None:
    assert words in refused(content, "rows.csv")


def test_a_broken_parquet_file_is_one_line(tmp_path: Path, refused: Refused) -> None:
    whole = written(tmp_path, ".parquet", [ROW] * 50).read_bytes()
    for content in (b"", b"PAR1", whole[:-20], whole[:200], whole[200:]):
        assert "rows.parquet" in refused(content, "rows.parquet")
    # Damage inside: either found, or no text of ours.
    broken = bytearray(whole)
    broken[20:60] = bytes(40)
    (tmp_path / "b.parquet").write_bytes(broken)
    with pytest.raises(BadInput, match=r"b\.parquet"):
        read_dataset(tmp_path / "b.parquet")


def test_other_formats_and_missing_files_are_refused(
    tmp_path: Path, refused: Refused
) -> None:
    assert "'.txt'; choose from: .jsonl, .json, .csv, .parquet" in refused(
        "a", "rows.txt"
    )
    with pytest.raises(BadInput, match="there is no such file"):
        read_dataset(tmp_path / "nowhere.jsonl")


def test_too_many_roles_are_refused() -> None:
    letters = "abcdefghijklmnopqrst"
    roles = {letter: letter for letter in letters}
    with pytest.raises(BadInput, match="20 names of roles; at most 16"):
        dataset_of([{"prompt": letters, "roles": roles}])
