"""Every arm trains on a device that is not the CPU, to the same weights."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from circuits.study import STUDIES, find
from tests.device import standin
from tests.device.sample import sampled
from tests.toy import bowl_arm, bowl_stage
from trained.analogy.head import AcceleratedDescent, HeadDescent
from trained.arm import Arm, Stage
from trained.trainer import Engine, Observer, Trainer

STEPS = 2


def arms(study: str) -> dict[str, Arm]:
    found = find(study)
    return {arm.name: arm for arm in found.arms(found.preset("zoo").config)}


def chosen(study: str) -> list[Arm]:
    """Three arms or a few more: neighbours in the list are alike."""
    found = list(arms(study).values())
    return found[:: max(1, len(found) // 3)]


def short(arm: Arm, steps: int = STEPS) -> Arm:
    """Some steps of each stage, recorded once at the beginning and at the end."""
    stages = tuple(cut(stage, steps) for stage in arm.stages)
    return replace(arm, stages=stages, save_steps=(), record_every=10**6)


def cut(stage: Stage, steps: int) -> Stage:
    """So many steps of it, those inside of one included."""
    loss = stage.loss
    if isinstance(loss, HeadDescent | AcceleratedDescent):
        loss = replace(loss, iterations=steps)
    return replace(stage, steps=min(stage.steps, steps), loss=loss)


def trained(arm: Arm, device: str, folder: Path) -> dict[str, torch.Tensor]:
    seeds = (301, 302) if arm.stackable else (301,)
    trainer = Trainer(arm, seeds, Engine(device=device), folder, Observer())
    trainer.train()
    return {name: t.cpu() for name, t in trainer.ensemble.parameters.items()}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_every_arm_trains_there_as_on_the_cpu(study: str, tmp_path: Path) -> None:
    for name, arm in sampled(list(arms(study).items())):
        here = trained(short(arm), "cpu", tmp_path / name / "cpu")
        with standin.device() as device:
            there = trained(short(arm), str(device), tmp_path / name / "there")
        for key, weight in here.items():
            torch.testing.assert_close(
                there[key], weight, rtol=1e-4, atol=1e-6, msg=f"{name}: {key}"
            )


def copies(arm: Arm, steps: int, folder: Path) -> Counter[str]:
    with standin.device() as device:
        # States are saved by the clock, not by the step.
        engine = Engine(device=str(device), save_seconds=1e9)
        Trainer(short(arm, steps), (301,), engine, folder, Observer()).train()
        return standin.COPIES.copy()


@pytest.mark.parametrize("record_every", [1, 100])
def test_a_seed_stops_at_its_step_though_nobody_looks(
    record_every: int, tmp_path: Path
) -> None:
    starts = {0: (1.0, 0.0), 1: (4.0, 0.0), 2: (64.0, 0.0)}
    stage = bowl_stage(steps=6, stop_below=0.1)
    arm = bowl_arm(starts, stage, record_every=record_every)
    with standin.device() as device:
        engine = Engine(device=str(device))
        trainer = Trainer(arm, (0, 1, 2), engine, tmp_path, Observer())
        trainer.train()
        assert trainer.ensemble.parameters["a"].tolist() == [0.25, 0.25, 1]
        assert trainer.stopped_at.tolist() == [[2], [4], [-1]]


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_a_step_between_two_records_brings_nothing_to_the_host(
    study: str, tmp_path: Path
) -> None:
    for arm in chosen(study):
        few = copies(arm, 3, tmp_path / arm.name / "few")
        many = copies(arm, 9, tmp_path / arm.name / "many")
        assert many == few, arm.name
