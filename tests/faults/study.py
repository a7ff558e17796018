"""What the fault suite trains: nets that fill a small disk, and take their time."""

import time
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from tests import toy
from tests.random_models import letter_tokenizer, random_model
from trained.arm import Arm
from trained.facts import Fact
from trained.finetuning import Curriculum, FineTuning, fine_tuning
from trained.trainer import Engine, Observer
from trained.training import train

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


class _Slow(Observer):
    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:  # noqa: ARG002
        time.sleep(0.005)


def checkpoint(path: str) -> None:
    """Train with a checkpoint at every step: a kill falls into one."""
    _train(path, toy.two_stage_arm(50, stop_below=0.0))


def fine_tune(path: str) -> None:
    """Fine-tune a pretrained model with a checkpoint at every step."""
    facts = [Fact(f"a{c}", d) for c, d in zip("cdefgh", "hgfedc", strict=True)]
    config = FineTuning(epochs=20, batch_size=2, lr=0.01, last_layers=1)
    phases = Curriculum("net", (("facts",),))
    model = random_model("llama")
    _train(
        path, fine_tuning(model, letter_tokenizer(), phases, {"facts": facts}, config)
    )


def _train(path: str, arm: Arm) -> None:
    engine = Engine(batching="loop", save_seconds=0.0)
    train(toy.start_run(Path(path), SEEDS), [arm], engine=engine, observer=_Slow())


LIBRARY = {"checkpointing": checkpoint, "fine-tuning": fine_tune}
