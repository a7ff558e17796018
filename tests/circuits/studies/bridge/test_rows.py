"""Rows of two-hop facts: files of every kind, what tells, draws split by bridge."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from circuits.datasets.dataset import dataset_of
from circuits.studies.bridge.llm.rows import (
    SCHEMA,
    Drawn,
    Row,
    as_prompts,
    draw,
    lendable,
    lenders,
    telling,
)
from trained.errors import BadInput


def landmarks() -> list[Row]:
    own = SCHEMA.own()
    assert own is not None
    return list(own.rows)


def row(e1: str, e2: str, e3: str, r2: str = "capital") -> Row:
    return Row(
        uid=f"{e1} {r2}",
        r1="in",
        r2=r2,
        e1=e1,
        e2=e2,
        e3=e3,
        two_hop=f"The {r2} of the country of {e1} is",
        hop1=f"{e1} is in",
        hop2=f"The {r2} of {e2} is",
    )


PERU = row("Machu Picchu", "Peru", "Lima")
SPAIN = row("The Alhambra", "Spain", "Madrid")
TALK = row("The University of Madrid", "Spain", "Spanish", "language")
JAPAN = row("Mount Fuji", "Japan", "Tokyo")


def test_the_omitted_relation_by_hand() -> None:
    assert PERU.omitting("Machu Picchu") == "The capital of Machu Picchu is"
    assert PERU.omitting("Mount Fuji") == "The capital of Mount Fuji is"


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv"])
def test_files_of_every_kind(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"facts.{kind}"
    # Further columns, such as the mention of the shared files, do not matter.
    entries = [{**asdict(r), "mention": "x"} for r in (PERU, SPAIN)]
    if kind == "json":
        file.write_text(json.dumps(entries))
    elif kind == "jsonl":
        file.write_text("\n".join(map(json.dumps, entries)))
    else:
        with file.open("w", newline="") as stream:
            table = csv.DictWriter(stream, entries[0])
            table.writeheader()
            table.writerows(entries)
    assert SCHEMA.read(file).rows == (PERU, SPAIN)


def test_other_names_can_be_mapped(tmp_path: Path) -> None:
    entry = asdict(PERU)
    entry["head"] = entry.pop("e1")
    file = tmp_path / "facts.json"
    file.write_text(json.dumps([entry]))
    with pytest.raises(BadInput, match=r"facts.json: row 1: field 'e1' is missing"):
        SCHEMA.read(file)
    assert SCHEMA.read(file, ["head=e1"]).rows == (PERU,)
    with pytest.raises(BadInput, match="unknown field 'subject'; choose from: uid, r1"):
        SCHEMA.read(file, ["head=subject"])


def test_a_second_hop_without_its_bridge_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "facts.jsonl"
    odd = {**asdict(PERU), "hop2": "Its capital is"}
    file.write_text("\n".join(map(json.dumps, [asdict(SPAIN), odd])))
    with pytest.raises(BadInput, match="line 2: field 'hop2' does not name e2"):
        SCHEMA.read(file)


def test_rows_that_tell_the_answer_are_dropped() -> None:
    # Madrid is in the subject: it gives the capital, and so the language, away.
    named = row("Peru's best beach", "Peru", "Lima")
    assert telling([PERU, SPAIN, TALK, JAPAN, named]) == [PERU, SPAIN, JAPAN]


def test_draws_are_split_by_bridge() -> None:
    rows = landmarks()
    found = draw(rows, bridges=12, each=2, share=0.5, seed=0)
    assert len({r.e2 for r in found.rows}) == 12
    assert not {r.e2 for r in found.rows} & {r.e2 for r in found.others}
    assert len(found.others) == round(len(found.rows) / 2)
    assert found == draw(rows, bridges=12, each=2, share=0.5, seed=0)
    assert found != draw(rows, bridges=12, each=2, share=0.5, seed=1)
    with pytest.raises(BadInput, match="bridges=100"):
        draw(rows, bridges=100, each=2, share=0.0, seed=0)
    with pytest.raises(AssertionError, match="both sides"):
        Drawn((PERU,), (replace(PERU, uid="other"),))


def test_what_is_lent_is_wrong_for_the_borrower() -> None:
    rows = [PERU, SPAIN, TALK, JAPAN]
    assert lendable(rows) == [PERU, SPAIN, JAPAN]
    assert lenders([PERU, SPAIN, JAPAN]) == [SPAIN, JAPAN, PERU]
    with pytest.raises(BadInput, match="another object"):
        lenders(rows)


def test_the_landmarks_tell_nothing() -> None:
    rows = landmarks()
    assert telling(rows) == rows == lendable(rows)
    assert len({r.uid for r in rows}) == len(rows) == 96
    known: dict[tuple[str, str], str] = {}
    for r in rows:
        assert known.setdefault((r.e2, r.r2), r.e3) == r.e3


def test_questions_can_be_scanned() -> None:
    found = dataset_of(as_prompts(landmarks()))
    assert len(found) == len(landmarks())
    first = dataset_of(as_prompts([PERU])).rows[0]
    assert (first.answers, first.group) == ((" Lima",), "capital")
    assert first.prompt[slice(*first.roles["subject"])] == "Machu Picchu"
    with pytest.raises(BadInput, match="does not name its subject"):
        as_prompts([replace(PERU, e1="Cusco")])
