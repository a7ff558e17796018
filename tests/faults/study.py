"""What the fault suite trains: nets that fill a small disk, and take their time."""

import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from torch import Tensor

from circuits.models import open as pretrained
from circuits.tuning import course
from circuits.tuning.course import Course, Phase
from circuits.tuning.facts import Curriculum, Fact
from circuits.tuning.keeper import Keeper
from circuits.tuning.optimiser import LeanAdamW
from circuits.tuning.settings import Tuning
from circuits.tuning.tuned import Lesson, taught
from tests import toy
from tests.random_models import letter_tokenizer, random_model
from trained.arm import Arm
from trained.trainer import Engine, Observer
from trained.training import train

from .tally import Hashes, hashes, litter

REFERENCE = "tests.faults.study:STUDY"
WIDTH = 4000
SEEDS = (0, 4)


def slow_error(model: toy.Net, data: dict[str, Tensor]) -> Tensor:
    """Takes its time, so that there is a moment to be killed in."""
    time.sleep(0.002)
    return toy.squared_error(model, data)


def study_arms(config: toy.Config) -> tuple[Arm, ...]:
    """Four arms, each trained seed by seed."""
    stage = toy.net_stage(steps=config.steps, loss=slow_error)
    return tuple(
        toy.net_arm(
            stage,
            name=name,
            build=lambda seed: toy.Net(seed, WIDTH),
            save_steps=(0, config.steps // 2),
            stackable=False,
        )
        for name in ("net", "twin", "third", "fourth")
    )


STUDY = replace(
    toy.study(toy.SIZE, toy.NEGATIVE, slug="faults"),
    presets={
        "quick": replace(
            toy.PRESETS["quick"], config=toy.Config(steps=80), n_seeds=len(SEEDS)
        )
    },
    arms_part=study_arms,
)


class Left(NamedTuple):
    """What finished work has left: the hashes of its files, and what is odd."""

    files: Hashes
    odd: list[str]


class _Slow(Observer):
    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:  # noqa: ARG002
        time.sleep(0.005)


def checkpoint(path: str) -> Left:
    """Train with a checkpoint at every step: a kill falls into one."""
    run = toy.start_run(Path(path), SEEDS)
    engine = Engine(batching="loop", save_seconds=0.0)
    arm = toy.two_stage_arm(50, stop_below=0.0)
    train(run, [arm], engine=engine, observer=_Slow())
    return Left(hashes(run), litter(run))


def fine_tune(path: str) -> Left:
    """Fine-tune a language model with a checkpoint at every step."""
    facts = [Fact(f"a{c}", d) for c, d in zip("cdefgh", "hgfedc", strict=True)]
    lesson = Lesson(
        Curriculum("facts", (("facts",),)),
        {"facts": facts},
        seed=0,
        tuning=Tuning(epochs=40, batch_size=2, lr=0.01, layers="last:1"),
    )
    model = pretrained.wrap(random_model("llama"), letter_tokenizer())

    def weights(folder: Path | None) -> dict[str, Tensor]:
        with taught(model, lesson, folder=folder):
            return {k: t.clone() for k, t in model.module.state_dict().items()}

    constants = {"SAVE_SECONDS": 0.0, "SAVE_COST": 0.0}
    slowly = patch.object(Course, "_take", _slowly)
    with patch.multiple(course, **constants), slowly:
        Keeper(Path(path)).kept("net", weights)
    files = [file for file in Path(path).rglob("*") if file.is_file()]
    done = {file.name: sha256(file.read_bytes()).hexdigest() for file in files}
    odd = [f"{name} was left behind" for name in done if name != "net.safetensors"]
    return Left({"net": done}, odd)


_take = Course._take


def _slowly(under_way: Course, phase: Phase, optimiser: LeanAdamW) -> None:
    time.sleep(0.01)
    _take(under_way, phase, optimiser)


LIBRARY = {"checkpointing": checkpoint, "fine-tuning": fine_tune}
