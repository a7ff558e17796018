"""From a request to a run to verdicts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from circuits import confirm as experiment
from circuits.claims import Claim
from circuits.command.request import Request
from circuits.confirm import confirm_run, prepare, study_of, train_run
from tests import toy
from trained import store
from trained.arm import Arm
from trained.errors import BadInput
from trained.trainer import Observer

pytestmark = pytest.mark.usefixtures("toy_studies")


@pytest.fixture
def request_for(tmp_path: Path) -> Request:
    return Request("toy", device="cpu", out=tmp_path / "runs", jobs=1)


def test_a_prepared_run_holds_all_that_was_asked_for(request_for: Request) -> None:
    run = prepare(replace(request_for, seeds=(3, 5), assignments=("width=5",)))
    manifest = run.manifest
    assert manifest["study"] == "toy"
    assert manifest["preset"] == "quick"
    assert manifest["config"]["width"] == 5
    assert manifest["seeds"] == [3, 5]
    assert manifest["device"] == "cpu"
    assert {"python", "torch", "commit"} <= manifest["environment"].keys()
    assert run.path.name.startswith("toy-quick-")
    assert study_of(run)[1] == toy.Config(width=5)


def test_without_seeds_the_presets_number_is_used(request_for: Request) -> None:
    assert prepare(request_for).seeds == (0, 1)
    assert prepare(replace(request_for, preset="paper")).seeds == (0, 1, 2)


def test_the_same_request_comes_back_to_the_same_run(request_for: Request) -> None:
    assert prepare(request_for).path == prepare(replace(request_for, jobs=2)).path


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "paper"},
        {"seeds": (0, 2)},
        {"seeds": (1, 0)},
        {"assignments": ("width=5",)},
        {"study": "other"},
    ],
)
def test_a_changed_request_gets_another_run(
    request_for: Request, changes: dict[str, object]
) -> None:
    assert prepare(request_for).path != prepare(replace(request_for, **changes)).path


def test_changed_code_gets_another_run(
    request_for: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = prepare(request_for).path
    monkeypatch.setattr(experiment, "_source_hash", lambda _slug: "other code")
    assert prepare(request_for).path != before


def test_a_device_that_is_absent_is_refused_and_nothing_is_written(
    request_for: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match="device 'cuda' is not present"):
        prepare(replace(request_for, device="cuda"))
    assert not request_for.out.exists()
    assert prepare(replace(request_for, device="auto")).manifest["device"] == "cpu"


class Names(Observer):
    def __init__(self) -> None:
        self.trained: list[str] = []

    def on_finish(self, arm: Arm, seconds: float) -> None:  # noqa: ARG002
        self.trained.append(arm.name)


def test_only_what_is_missing_is_trained(request_for: Request) -> None:
    run, first, second = prepare(request_for), Names(), Names()
    train_run(run, observer=first, jobs=1)
    train_run(run, observer=second, jobs=1)
    assert first.trained == ["net", "twin"]
    assert second.trained == []


def test_an_untrained_run_cannot_be_judged(request_for: Request) -> None:
    run = prepare(request_for)
    with pytest.raises(BadInput, match="is not trained yet: net, twin"):
        confirm_run(run)
    assert not (run.path / "verdicts.json").exists()


def test_the_verdicts_are_stored_as_the_documented_object(request_for: Request) -> None:
    run = prepare(request_for)
    train_run(run, jobs=1)
    confirmation = confirm_run(run)
    stored = json.loads((run.path / "verdicts.json").read_text())
    assert stored == confirmation.as_dict()
    assert list(stored) == [
        *("schema", "study", "preset", "config", "seeds", "device", "seconds"),
        *("environment", "verdicts"),
    ]
    assert stored["schema"] == 1
    assert [verdict["claim"] for verdict in stored["verdicts"]] == [
        "toy.size",
        "toy.open",
    ]
    assert len(stored["verdicts"][0]["values"]) == 2


def test_only_gated_claims_decide(
    request_for: Request, toy_claims: list[Claim]
) -> None:
    run = prepare(request_for)
    train_run(run, jobs=1)
    confirmation = confirm_run(run)
    assert [v.passed for v in confirmation.verdicts] == [True, False]
    assert confirmation.passed
    toy_claims[1] = replace(toy_claims[1], gated=True)
    assert not confirm_run(run).passed


def test_a_confirmation_shows_itself_in_a_notebook(request_for: Request) -> None:
    run = prepare(request_for)
    train_run(run, jobs=1)
    page = confirm_run(run)._repr_html_()
    assert page.startswith("<table>")
    assert "toy.size" in page


def test_a_shipped_run_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, request_for: Request
) -> None:
    run = prepare(request_for)
    train_run(run, jobs=1)
    monkeypatch.setattr(store, "SHIPPED", run.path.parent)
    confirm_run(run)
    assert not (run.path / "verdicts.json").exists()
