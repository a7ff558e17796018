"""From a trained run to verdicts, scores and the object that others parse."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circuits.claims import Claim, Verdict, judge
from circuits.conditions import Mean
from circuits.confirm import Confirmation, chosen, confirm_run, open_lab, score
from circuits.judging import _bare, _in_turn, judging, kept_lab, one_by_one
from circuits.results import stored
from circuits.study import Request
from circuits.training import prepare, train_run
from tests import toy
from trained import store
from trained.errors import BadInput, Incomplete, Lost
from trained.store import Run, write_json
from trained.workers import Processes, Result, tried
from trained.zoo import shipped_names


@pytest.fixture
def run(tmp_path: Path) -> Run:
    request = Request("tests.toy:STUDY", device="cpu", out=tmp_path / "runs")
    started = prepare(request)
    train_run(started)
    return started


def test_an_untrained_run_cannot_be_judged(tmp_path: Path) -> None:
    run = prepare(Request("tests.toy:STUDY", out=tmp_path))
    with pytest.raises(BadInput, match="is not trained yet: net, twin"):
        confirm_run(run)
    assert not (run.path / "verdicts.json").exists()


def test_the_verdicts_are_stored_as_the_documented_object(run: Run) -> None:
    confirmation = confirm_run(run)
    stored = json.loads((run.path / "verdicts.json").read_text())
    assert stored == confirmation.as_dict()
    assert stored["schema"] == 2
    assert stored["study"] == "toy"
    assert stored["model"] is None
    assert stored["score"]["paper"]["confirmed"] == 1
    assert stored["score"]["paper"]["weighted"] == 1.0
    assert stored["score"]["ours"]["refuted"] == 1
    assert [verdict["claim"] for verdict in stored["verdicts"]] == [
        "toy.size",
        "toy.negative",
    ]
    assert len(stored["verdicts"][0]["values"]) == 3


@pytest.mark.slow
def test_processes_judge_as_this_one_does(run: Run) -> None:
    told: list[Confirmation] = []
    here = confirm_run(run)
    there = confirm_run(run, executor=Processes(2), told=told.append)
    assert [part.verdicts for part in told] == [there.verdicts]
    for one, other in zip(here.verdicts, there.verdicts, strict=True):
        ours, theirs = one.as_dict(), other.as_dict()
        assert ours.pop("seconds") >= 0 <= theirs.pop("seconds")
        assert ours == theirs


def test_a_headline_is_told_as_soon_as_its_last_claim_is_judged() -> None:
    judged: list[str] = []
    parts: list[list[str]] = []

    def named(name: str, headline: str) -> Claim:
        def measure(_lab: object) -> list[float]:
            judged.append(name)
            return [1.0]

        values = Mean("x", ">= 0", measure)
        return replace(toy.SIZE, id=name, headline=headline, conditions=(values,))

    def told(verdicts: Sequence[Verdict]) -> None:
        parts.append([verdict.claim.id for verdict in verdicts])
        assert judged == [name for part in parts for name in part]

    claims = [named("a1", "a"), named("b", "b"), named("a2", "a")]
    found = one_by_one("judging", None, claims, told)
    assert parts == [["a1", "a2"], ["b"]]
    assert [verdict.claim.id for verdict in found] == ["a1", "b", "a2"]


def test_a_headline_that_fails_is_named_and_the_others_are_told(run: Run) -> None:
    lab, told = open_lab(run), list[str]()
    claims = [replace(toy.SIZE, id=name, headline=name) for name in ("a", "b", "c")]

    def note(verdicts: Sequence[Verdict]) -> None:
        told.extend(verdict.claim.id for verdict in verdicts)

    course = judging(lab, claims, Processes(2), note)
    asked = next(course)
    for task in asked.tasks:
        (name,) = task.claims
        bare = {name: _bare(judge(claims[0], lab))}
        lost = Result(error=Lost("its process ended by SIGKILL"))
        asked.done(task, lost if name == "b" else Result(bare))
    assert sorted(told) == ["a", "c"]
    with pytest.raises(Incomplete, match="not judged: b: its process ended by SIGKILL"):
        next(course)


def test_a_short_headline_is_judged_first_then_the_longest() -> None:
    headlines = {"a": "one", "b": "two", "c": "two", "d": "new"}
    claims = [
        replace(toy.SIZE, id=name, headline=headline)
        for name, headline in headlines.items()
    ]
    took = {"a": 2.5, "b": 1.0, "c": 2.0}
    assert _in_turn(claims, took) == [("d",), ("b", "c"), ("a",)]


def test_a_worker_keeps_the_lab_of_one_run_at_a_time(run: Run) -> None:
    lab = kept_lab(run.path)
    assert kept_lab(run.path) is lab
    assert kept_lab(store.shipped("bridge").path) is not lab
    assert kept_lab(run.path) is not lab
    kept_lab.cache_clear()


def test_claims_that_could_not_be_judged_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("circuits.judging.find", lambda _name: None)

    def here(work: Any, tasks: Any, done: Any) -> None:
        for task in tasks:
            done(task, tried(work, task))

    with pytest.raises(Incomplete, match=r"not judged: toy.size.*'lab'"):
        confirm_run(run, executor=here)


def test_an_unfinished_run_is_judged_where_its_arms_are_if_asked(
    tmp_path: Path,
) -> None:
    run = prepare(Request("tests.toy:STUDY", device="cpu", out=tmp_path / "runs"))
    train_run(run, only="twin")
    done = confirm_run(run, partial=True)
    words = {v.claim.id: v.word for v in done.verdicts}
    assert words["toy.size"] == "not tested"
    assert "no arm net" in done["toy.size"].reason
    assert done.arms["net"] is None
    assert done.arms["twin"]["seeds"] == [301, 302, 303]
    assert not (run.path / "verdicts.json").exists()
    with pytest.raises(BadInput, match="unknown arms 'x'"):
        train_run(run, only="x")


def test_a_verdict_says_how_to_repeat_it(tmp_path: Path) -> None:
    asked = Request(
        "tests.toy:STUDY", assignments=("width=5",), seeds=(4,), out=tmp_path
    )
    run = prepare(asked)
    train_run(run)
    assert confirm_run(run).command == (
        "reasonscope confirm tests.toy:STUDY --preset quick --seeds 4, --set width=5"
    )


def test_a_stored_verdict_is_shown_beside_and_not_counted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = confirm_run(run)
    write_json(tmp_path / "toy.json", done.as_dict())
    assert stored("toy", folder=tmp_path)["toy.size"]["verdict"] == "confirmed"
    assert stored("other", folder=tmp_path) == {}
    monkeypatch.setattr(
        "circuits.confirm.stored", lambda *_a, **_k: stored("toy", folder=tmp_path)
    )
    again = done.as_dict()
    assert again["verdicts"][0]["stored"]["seeds"] == [301, 302, 303]
    assert again["score"] == done.as_dict()["score"]


def test_a_part_is_judged_alone_and_not_stored(run: Run) -> None:
    done = confirm_run(run, only="*.size")
    assert [verdict.claim.id for verdict in done.verdicts] == ["toy.size"]
    assert done["toy.size"].passed
    assert not (run.path / "verdicts.json").exists()
    with pytest.raises(BadInput, match=r"unknown claims 'toy\.x\*'; choose from: toy"):
        confirm_run(run, only="toy.x*")
    with pytest.raises(BadInput, match=r"unknown claim 'toy\.negative'"):
        done["toy.negative"]


def test_only_what_the_paper_asserts_decides(run: Run) -> None:
    done = confirm_run(run)
    assert [v.passed for v in done.verdicts] == [True, False]
    assert done.passed
    assert not open_lab_of(run, toy.REFUTED).passed


def open_lab_of(run: Run, study: object):  # type: ignore[no-untyped-def]
    lab = open_lab(run)
    return lab.other(study=study).confirm()


def test_the_score_weighs_what_was_confirmed(run: Run) -> None:
    lab = open_lab(run)
    verdicts = [judge(claim, lab) for claim in (toy.SIZE, toy.NEGATIVE)]
    assert score(verdicts, "paper") == {
        "confirmed": 1,
        "refuted": 0,
        "inconclusive": 0,
        "not_tested": 0,
        "weighted": 1.0,
        "tested": 1.0,
    }
    assert score(verdicts[:1], "ours")["weighted"] is None


def test_claims_are_chosen_by_pattern() -> None:
    claims = [toy.SIZE, toy.NEGATIVE]
    assert chosen(claims, "*") == claims
    assert chosen(claims, "toy.s*") == [toy.SIZE]


def test_a_confirmation_shows_itself_in_a_notebook(run: Run) -> None:
    page = confirm_run(run)._repr_html_()
    assert "<table>" in page
    assert "toy.size" in page


def test_a_shipped_run_is_told_from_ones_own(run: Run) -> None:
    assert store.is_shipped(store.shipped(shipped_names()[0]))
    assert not store.is_shipped(run)
