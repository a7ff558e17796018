"""From a request to a trained run; side by side is one after the other."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from circuits.results import arm_seconds, claim_seconds
from circuits.study import Request, find
from circuits.training import (
    _Left,
    arms_left,
    prepare,
    source_hash,
    train_run,
)
from tests import toy
from trained.arm import Arm
from trained.errors import BadInput
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import train
from trained.workers import Processes

NAMES = ("net", "twin")


@pytest.fixture
def request_for(tmp_path: Path) -> Request:
    return Request("tests.toy:STUDY", device="cpu", out=tmp_path / "runs", jobs=1)


def test_a_prepared_run_holds_all_that_was_asked_for(request_for: Request) -> None:
    changes = ("width=5", "head.depth=3")
    run = prepare(replace(request_for, seeds=(3, 5), assignments=changes))
    manifest = run.manifest
    assert manifest["study"] == "tests.toy:STUDY"
    assert manifest["preset"] == "quick"
    assert manifest["config"]["width"] == 5
    assert manifest["seeds"] == [3, 5]
    assert manifest["device"] == "cpu"
    assert {"python", "torch", "commit"} <= manifest["environment"].keys()
    assert run.path.name.startswith("toy-quick-")
    expected = toy.Config(width=5, head=toy.Head(3))
    assert toy.STUDY.config_of(manifest["config"]) == expected


def test_what_may_cost_digits_is_another_run_and_says_so(request_for: Request) -> None:
    exact, half = prepare(request_for), prepare(replace(request_for, fast=("bf16",)))
    assert half.path != exact.path
    assert half.manifest["fast"] == ["bf16"]
    for run in (exact, half):
        train_run(run)
    weights = [run.weights("net") for run in (exact, half)]
    assert any(not torch.equal(w, weights[1][k]) for k, w in weights[0].items())


def test_without_seeds_the_presets_number_is_used(request_for: Request) -> None:
    assert prepare(request_for).seeds == (301, 302, 303)
    assert prepare(replace(request_for, preset="paper")).seeds == (301, 302, 303, 304)


def test_the_same_request_comes_back_to_the_same_run(request_for: Request) -> None:
    assert prepare(request_for).path == prepare(replace(request_for, jobs=2)).path


@pytest.mark.parametrize(
    "changes",
    [
        {"preset": "paper"},
        {"seeds": (0, 2)},
        {"seeds": (1, 0)},
        {"assignments": ("width=5",)},
        {"assignments": ("head.depth=5",)},
        {"study": "tests.toy:OTHER"},
    ],
)
def test_a_changed_request_gets_another_run(
    request_for: Request, changes: dict[str, object]
) -> None:
    assert prepare(request_for).path != prepare(replace(request_for, **changes)).path


def test_changed_code_gets_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (Path(__file__).parents[1] / "toy.py").read_text()
    monkeypatch.syspath_prepend(tmp_path)
    runs = []
    for name, line in (("one", ""), ("two", "# changed\n")):
        (tmp_path / f"toy_{name}.py").write_text(source + line)
        request = Request(f"toy_{name}:STUDY", device="cpu", out=tmp_path / "runs")
        runs.append(source_hash(find(request.study)))
    assert runs[0] != runs[1]


def test_a_device_that_is_absent_is_refused_and_nothing_is_written(
    request_for: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name in ("cuda", "cuda:3"):
        with pytest.raises(BadInput, match=f"device '{name}' is not present"):
            prepare(replace(request_for, device=name))
    assert not request_for.out.exists()
    assert prepare(replace(request_for, device="auto")).manifest["device"] == "cpu"


class Finished(Observer):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_finish(self, arm: Arm, seconds: float) -> None:
        assert seconds >= 0
        self.names.append(arm.name)


def test_only_what_is_missing_is_trained(request_for: Request) -> None:
    run, first, second = prepare(request_for), Finished(), Finished()
    assert [arm.name for arm in arms_left(run)] == list(NAMES)
    train_run(run, observer=first)
    train_run(run, observer=second)
    assert first.names == list(NAMES)
    assert second.names == []
    assert arms_left(run) == []


class Interrupted(Observer):
    def on_step(self, arm: Arm, step: int, losses: torch.Tensor) -> None:  # noqa: ARG002
        if step == arm.steps // 2:
            raise KeyboardInterrupt


def test_how_far_training_is_can_be_read_off_the_run(request_for: Request) -> None:
    run = prepare(request_for)
    arms = arms_left(run)
    left = _Left(run, arms)
    assert left.trained() == (0, "0 of 2 arms")
    engine = Engine(batching="vmap", save_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        train(run, arms, engine=engine, observer=Interrupted())
    done, words = left.trained()
    steps = arms[0].steps
    assert done == pytest.approx(steps // 2 / steps)
    assert words == "0 of 2 arms"
    train_run(run)
    assert left.trained() == (left.total, "2 of 2 arms")


def test_arms_count_by_what_they_took_in_a_stored_run() -> None:
    took = arm_seconds("recall", "quick")
    assert took != arm_seconds("recall", "paper")
    assert all(seconds > 0 for seconds in took.values())
    assert arm_seconds("toy", "quick") == {}
    assert claim_seconds("recall", "quick")["recall.fig3.partial"] > 1


def test_what_took_longest_in_a_stored_run_is_trained_first(
    request_for: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepare(request_for)
    monkeypatch.setattr(
        "circuits.training.arm_seconds", lambda *_: {"net": 1.0, "twin": 2.0}
    )
    longest_first = _Left(run, arms_left(run)).longest_first
    assert [arm.name for arm in longest_first] == ["twin", "net"]


def started(out: Path) -> tuple[Run, list[Arm]]:
    run = prepare(Request("tests.toy:STUDY", seeds=(0, 4), out=out))
    return run, arms_left(run)


@pytest.mark.slow
def test_processes_give_the_bits_of_this_one(tmp_path: Path) -> None:
    run, _ = started(tmp_path / "processes")
    observer = Finished()
    train_run(run, executor=Processes(2), observer=observer)
    assert sorted(observer.names) == sorted(NAMES)
    alone, arms = started(tmp_path / "alone")
    train(alone, arms, engine=Engine())
    for name in NAMES:
        for step in run.record(name)["saved_steps"]:
            one, other = run.weights(name, step), alone.weights(name, step)
            assert one.keys() == other.keys()
            assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.slow
def test_what_a_process_refuses_is_refused_here_when_the_others_are_done(
    tmp_path: Path,
) -> None:
    run, _ = started(tmp_path)
    plan = run.path / NAMES[0] / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_bytes(b"half a fi")
    with pytest.raises(BadInput, match=r"cannot read .*plan\.json"):
        train_run(run, executor=Processes(2), observer=Observer())
    assert not run.is_done(NAMES[0])
    assert run.is_done(NAMES[1])


def test_a_finished_arm_that_was_changed_is_not_built_upon(
    request_for: Request,
) -> None:
    run = prepare(request_for)
    train_run(run, only="net")
    (run.path / "net" / "metrics.safetensors").write_bytes(b"")
    with pytest.raises(BadInput, match=r"metrics\.safetensors was changed"):
        train_run(run)
