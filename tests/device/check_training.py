"""Every arm trains on a device that is not the CPU, to the same weights."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from circuits.study import STUDIES, find
from tests.device import standin
from trained.arm import Arm
from trained.trainer import Engine, Observer, Trainer

STEPS = 2


def arms(study: str) -> dict[str, Arm]:
    found = find(study)
    return {arm.name: arm for arm in found.arms(found.preset("zoo").config)}


def chosen(study: str) -> dict[str, Arm]:
    """Eight arms or a few more: neighbours in the list are alike."""
    found = arms(study)
    names = list(found)[:: max(1, len(found) // 8)]
    return {name: found[name] for name in names}


def short(arm: Arm, steps: int = STEPS) -> Arm:
    """Two steps of each stage, recorded once at the beginning and at the end."""
    stages = tuple(replace(s, steps=min(s.steps, steps)) for s in arm.stages)
    return replace(arm, stages=stages, save_steps=(), record_every=10**6)


def trained(arm: Arm, device: str, folder: Path) -> dict[str, torch.Tensor]:
    seeds = (301, 302) if arm.stackable else (301,)
    trainer = Trainer(arm, seeds, Engine(device=device), folder, Observer())
    trainer.train()
    return {name: t.cpu() for name, t in trainer.ensemble.parameters.items()}


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_every_arm_trains_there_as_on_the_cpu(study: str, tmp_path: Path) -> None:
    for name, arm in chosen(study).items():
        here = trained(short(arm), "cpu", tmp_path / name / "cpu")
        with standin.device() as device:
            there = trained(short(arm), str(device), tmp_path / name / "there")
        for key, weight in here.items():
            torch.testing.assert_close(
                there[key], weight, rtol=1e-4, atol=1e-6, msg=f"{name}: {key}"
            )


def copies(arm: Arm, steps: int, folder: Path) -> Counter[str]:
    with standin.device() as device:
        trainer = Trainer(
            short(arm, steps), (301,), Engine(device=str(device)), folder, Observer()
        )
        trainer.train()
        return standin.COPIES.copy()


MOST_COPIES = 4
"""To the host, in a step: whether a seed is still active, and the records."""


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_a_step_brings_little_to_the_host(study: str, tmp_path: Path) -> None:
    name, arm = next(iter(arms(study).items()))
    few = copies(arm, 10, tmp_path / name / "few").total()
    many = copies(arm, 30, tmp_path / name / "many").total()
    assert many - few <= 20 * MOST_COPIES
