"""Arms trained side by side are the arms trained one after the other."""

from pathlib import Path

import pytest
import torch

from circuits.command.request import Request
from circuits.command.workers import train_in_processes
from circuits.confirm import prepare, study_of
from trained.arm import Arm
from trained.errors import BadInput
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import train

NAMES = ("full-affine", "full-random")


class Finished(Observer):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_finish(self, arm: Arm, seconds: float) -> None:
        assert seconds >= 0
        self.names.append(arm.name)


def started(out: Path) -> tuple[Run, list[Arm]]:
    """A tiny run of the recall study, and its two quickest arms."""
    sizes = ("n_subjects=4", "n_relations=4", "full_steps=5")
    run = prepare(Request("recall", seeds=(0,), assignments=sizes, out=out))
    study, config = study_of(run)
    return run, [arm for arm in study.arms(config) if arm.name in NAMES]


@pytest.mark.slow
def test_processes_give_the_bits_of_this_one(tmp_path: Path) -> None:
    run, arms = started(tmp_path / "processes")
    observer = Finished()
    train_in_processes(run, arms, jobs=2, observer=observer)
    assert sorted(observer.names) == sorted(NAMES)
    alone, arms = started(tmp_path / "alone")
    train(alone, arms, engine=Engine())
    for name in NAMES:
        for step in run.record(name)["saved_steps"]:
            one, other = run.weights(name, step), alone.weights(name, step)
            assert one.keys() == other.keys()
            assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.slow
def test_what_a_process_refuses_is_refused_here(tmp_path: Path) -> None:
    run, arms = started(tmp_path)
    state = run.path / NAMES[0] / "group-0" / "state.safetensors"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"half a fi")
    with pytest.raises(BadInput, match=r"cannot read .*state\.safetensors"):
        train_in_processes(run, arms[:1], jobs=2, observer=Observer())
    assert not run.is_done(NAMES[0])
