"""What the tests of the engine share: settings, runs, equality, observers."""

from collections.abc import Callable

import torch
from torch import Tensor

from trained.arm import Arm, Optimiser, adam, gradient_descent
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import train

NewRun = Callable[..., Run]
BATCHINGS = ("vmap", "loop")
OPTIMISERS = {
    "gd": gradient_descent(0.05),
    "adam": adam(0.05),
    "adamw": Optimiser("adamw", 0.05, weight_decay=0.1, warmup=3, decay=0.5),
}
DRAWS = {
    "fresh batches": {"draw": "each step"},
    "minibatches": {"batch_size": 5},
    "full batch": {},
}


def trained(run: Run, arm: Arm, batching: str = "vmap", **engine: float) -> Run:
    train(run, [arm], engine=Engine(batching=batching, **engine))
    return run


def assert_same_run(one: Run, other: Run, arm: str) -> None:
    """Bit by bit: the weights of every saved step, and the metrics."""
    steps = one.record(arm)["saved_steps"]
    assert other.record(arm)["saved_steps"] == steps
    for step in steps:
        assert_equal(one.weights(arm, step), other.weights(arm, step))
    assert_equal(one.metrics(arm), other.metrics(arm))
    assert one.record(arm)["stopped_at"] == other.record(arm)["stopped_at"]


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


class Diary(Observer):
    """Writes down all it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.losses: list[Tensor] = []

    def on_arm(self, arm: Arm, seeds: tuple[int, ...]) -> None:
        self.events.append(("arm", arm.name, tuple(seeds)))

    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:
        self.events.append(("step", arm.name, step))
        self.losses.append(losses)

    def on_epoch(self, arm: Arm, epoch: int) -> None:
        self.events.append(("epoch", arm.name, epoch))

    def on_finish(self, arm: Arm, seconds: float) -> None:
        assert seconds >= 0
        self.events.append(("finish", arm.name))


class Interrupted(BaseException):
    """Stands for whatever ends a process."""


class InterruptAfter(Observer):
    """Ends training when so many steps were taken, counted over all groups."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:  # noqa: ARG002
        self.left -= 1
        if self.left == 0:
            raise Interrupted
