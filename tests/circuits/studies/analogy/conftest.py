"""Tiny runs of the study: one trained, one whose weights are set by hand."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from circuits.studies.analogy import STUDY
from circuits.studies.analogy.lab import AnalogyLab
from trained.analogy.arms import arms
from trained.analogy.config import (
    BlockSizes,
    Config,
    Gpt,
    Head,
    Labelled,
    Linear,
    Relu,
)
from trained.analogy.model import DeepLinear
from trained.analogy.task import Conclusions
from trained.config import as_dict
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

TINY = Config(
    block=BlockSizes(n_entities=12, d_model=64),
    head=Head(steps=800, rounds=4, boost=4.0),
    relu=Relu(n_entities=4, steps=40),
    gpt=Gpt(n_entities=4, width=24, layers=2, heads=2, steps=20),
    labelled=Labelled(n_labels=6, width=16),
    linear=Linear(layers=4, width=64),
)
SEEDS = (0, 1)
WIRED = Config(
    block=BlockSizes(n_entities=8, d_model=40),
    gpt=Gpt(n_entities=6, width=32, layers=2, heads=1),
    labelled=Labelled(n_labels=6, width=16),
    linear=Linear(layers=3, width=32),
)
Wiring = Callable[[Any, Conclusions | None], None]


def start(path: Path, config: Config, seeds: tuple[int, ...] = SEEDS) -> Run:
    manifest = {"study": "analogy", "config": as_dict(config), "seeds": list(seeds)}
    more = {"preset": "quick", "device": "cpu", "environment": {}}
    return Run.create(path, {**manifest, **more})


def trained(path: Path, config: Config) -> Run:
    run = start(path, config)
    train(run, arms(config), engine=Engine(batching="loop"))
    return run


def wired(path: Path, wirings: Mapping[str, Wiring]) -> AnalogyLab:
    """A lab in which these arms have the weights that their wirings set."""
    run = start(path, WIRED, seeds=(0,))
    for arm in arms(WIRED):
        if arm.name in wirings:
            model = arm.build(0)
            asked = arm.held_out(0) if arm.held_out is not None else None
            with torch.no_grad():
                wirings[arm.name](model, asked)
            weights = {k: v[None] for k, v in model.state_dict().items()}
            run.save_weights(arm.name, 1, weights)
            record = {"seeds": [0], "saved_steps": [1], "seconds": 0.0}
            run.finish(arm.name, {"step": torch.zeros(1)}, record)
    return AnalogyLab(STUDY, run)


def wire_linear(model: DeepLinear, _: Conclusions | None) -> None:
    """The first layer sends the second input of a label to the first."""
    first, second = model.W_E[0::2], model.W_E[1::2]
    model.blocks[0].W += (first - second).T @ second


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("analogy"), TINY)


@pytest.fixture
def tiny(tiny_run: Run) -> AnalogyLab:
    return AnalogyLab(STUDY, tiny_run)
