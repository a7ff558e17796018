"""A stage may change parameters before it begins, once."""

from pathlib import Path

import torch
from torch import Tensor, nn

from trained.arm import Arm, Stage, gradient_descent
from trained.store import Run
from trained.trainer import Engine
from trained.training import restore, train


class _Point(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(2))
        self.copy = nn.Parameter(torch.zeros(2))


def _distance(model: _Point, goal: Tensor) -> Tensor:
    return (model.place - goal[0]).square().sum()


def _remember(parameters: dict[str, Tensor]) -> None:
    parameters["copy"].copy_(parameters["place"])
    parameters["place"].zero_()


def test_prepare_acts_before_its_stage(tmp_path: Path) -> None:
    step = Stage(
        "first",
        steps=1,
        optimiser=gradient_descent(0.5),
        loss=_distance,
        data=lambda seed, _step: torch.full((1, 2), float(seed)),
        trainable=("place",),
    )
    again = Stage(
        "second",
        steps=1,
        optimiser=gradient_descent(0.25),
        loss=_distance,
        data=step.data,
        trainable=("place",),
        prepare=_remember,
    )
    arm = Arm("point", lambda _seed: _Point(), (step, again), save_steps=(1,))
    run = Run.create(tmp_path / "run", {"study": "toy", "seeds": [1, 3]})
    train(run, [arm], engine=Engine(batching="vmap"))
    for seed in (1, 3):
        before = restore(run, arm, seed, step=1)
        assert isinstance(before, _Point)
        assert before.place.tolist() == [seed, seed]
        model = restore(run, arm, seed)
        assert isinstance(model, _Point)
        assert model.copy.tolist() == [seed, seed]
        assert model.place.tolist() == [seed / 2, seed / 2]
