"""Group actions are built from names, generators and tables, and checked."""

import json
from itertools import product
from pathlib import Path

import pytest

from trained.errors import BadInput
from trained.lego.action import LARGEST_FILE, action, spelled

NAMES = {
    "C6": (6, 6, True),
    "S4": (24, 4, False),
    "A4": (12, 4, False),
    "D5": (10, 5, False),
    "S3reg": (6, 6, True),
    "C2xC3": (6, 6, True),
    "C2xS3": (12, 6, False),
    "generators:1.2.0.3/1.0.2.3": (6, 4, False),
    "generators:1.2.3.0": (4, 4, True),
    "table:0.1.2/1.2.0/2.0.1": (3, 3, True),
    "table:0.1/1.0/0.1/1.0": (4, 2, False),
}


@pytest.mark.parametrize("name", NAMES)
def test_sizes_and_kind(name: str) -> None:
    found = action(name)
    assert (found.n_actions, found.n_values, found.is_simply_transitive) == NAMES[name]


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_closed_under_composition(name: str) -> None:
    table = action(name).table
    rows = set(table)
    composed = {tuple(g[image] for image in h) for g, h in product(table, table)}
    assert composed == rows


def test_values_worked_by_hand() -> None:
    assert action("C6").table[4][3] == 1
    assert action("D4").table[5] == (1, 0, 3, 2)
    # (g, h)(y, z): g turns the pair's first part by one, h its second by two.
    assert action("C2xC3").table[1 * 3 + 2][0 * 3 + 2] == 1 * 3 + 1


def test_a_group_on_itself_multiplies() -> None:
    s3, regular = action("S3").table, action("S3reg").table
    for g, h in product(range(6), range(6)):
        after = tuple(s3[g][image] for image in s3[h])
        assert s3[regular[g][h]] == after


def test_distractors_are_as_frequent_as_there_are_values() -> None:
    rates = {name: action(name).distractor_rate for name in ("C6", "S5", "C24")}
    assert rates == pytest.approx({"C6": 1 / 6, "S5": 1 / 5, "C24": 1 / 24})
    # A fixed third point is always sent where another action sends it.
    assert action("generators:1.0.2").distractor_rate == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Q8", "unknown group action"),
        ("S", "unknown group action"),
        ("S9", "too large"),
        ("S6reg", "too large"),
        ("C300xC300", "too large"),
        ("D2", "at least 3 points"),
        ("table:0.1.2/1.2.0", "two rows compose to 2.0.1"),
        ("table:0.1/0.0", "row 0.0 is no permutation"),
        ("table:0.1/0", "row 0 is no permutation"),
        ("table:0.1/0.1/1.0", "repeated more often"),
        ("generators:a.b", "write rows like"),
        ("braid:0.1", "unknown group action"),
    ],
)
def test_what_is_no_group_action_is_refused_in_one_line(
    text: str, message: str
) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        action(text)
    assert "\n" not in str(refused.value)


def test_a_file_becomes_a_table(tmp_path: Path) -> None:
    file = tmp_path / "v.json"
    file.write_text(json.dumps([[0, 1, 2], [1, 2, 0], [2, 0, 1]]))
    assert spelled(f"file:{file}") == "table:0.1.2/1.2.0/2.0.1"
    assert spelled("C6") == "C6"
    file.write_text("[[0, 1], 5]")
    with pytest.raises(BadInput, match="not a JSON list"):
        spelled(f"file:{file}")
    with pytest.raises(BadInput, match="not a JSON list"):
        spelled("file:missing.json")


def test_devices_and_large_files_are_refused_unread(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a regular file"):
        spelled("file:/dev/zero")
    file = tmp_path / "large.json"
    file.write_text(" " * LARGEST_FILE + "0")
    with pytest.raises(BadInput, match="at most 1000000 bytes"):
        spelled(f"file:{file}")


def test_slugs_are_fit_for_file_names() -> None:
    long = action("generators:1.2.0.3/1.0.2.3").slug
    assert action("C2xC3").slug == "C2xC3"
    assert long.startswith("generators-")
    assert "/" not in long
    assert ":" not in long
