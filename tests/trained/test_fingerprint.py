"""Work that was begun as something else is refused, not continued."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from torch import Tensor

from tests.toy import Net, net_arm, net_stage, points, squared_error
from trained.arm import Arm, adam
from trained.errors import BadInput
from trained.fingerprint import fingerprint
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import train

NewRun = Callable[..., Run]


def own_error(model: Net, data: dict[str, Tensor]) -> Tensor:
    return squared_error(model, data)


def scaled_arm(scale: float, **changes: Any) -> Arm:
    """A loss that holds a number fast."""

    def loss(model: Net, data: dict[str, Tensor]) -> Tensor:
        return scale * squared_error(model, data)

    return net_arm(net_stage(loss=loss, **changes))


BASE = scaled_arm(1.0)
CHANGED = {
    "data": scaled_arm(1.0, data=lambda seed, step: points(seed + 1, step)),
    "weights": replace(BASE, build=lambda seed: Net(seed + 1)),
    "settings": scaled_arm(1.0, optimiser=adam(0.06)),
    "code": scaled_arm(2.0),
}


class Stop(Observer):
    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:  # noqa: ARG002
        if step == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("what", CHANGED)
def test_a_finished_arm_is_not_taken_for_another(new_run: NewRun, what: str) -> None:
    run = new_run()
    train(run, [BASE], engine=Engine())
    with pytest.raises(BadInput, match=rf"net was trained with other {what}; use"):
        train(run, [CHANGED[what]], engine=Engine())
    train(run, [scaled_arm(1.0)], engine=Engine())


@pytest.mark.parametrize("what", CHANGED)
def test_an_unfinished_arm_is_not_continued_as_another(
    new_run: NewRun, what: str
) -> None:
    run = new_run()
    with pytest.raises(KeyboardInterrupt):
        train(run, [BASE], engine=Engine(save_seconds=0.0), observer=Stop())
    with pytest.raises(BadInput, match=f"was trained with other {what}"):
        train(run, [CHANGED[what]], engine=Engine())
    train(run, [BASE], engine=Engine())


def test_other_seeds_are_refused_in_mid_training(new_run: NewRun) -> None:
    run = new_run()
    with pytest.raises(KeyboardInterrupt):
        train(run, [BASE], engine=Engine(), observer=Stop())
    with pytest.raises(BadInput, match=r"plan\.json has the seeds"):
        train(run, [replace(BASE, max_seeds=2)], engine=Engine())


def test_what_is_partly_given_and_methods_count_as_code() -> None:
    class Scale:
        def loss(self, model: Net, data: dict[str, Tensor]) -> Tensor:
            return own_error(model, data)

    losses = (own_error, partial(own_error), Scale().loss)
    hashes = {
        fingerprint(net_arm(net_stage(loss=f)), (0,))["code_hash"] for f in losses
    }
    # All three are written in this file, which is what is compared.
    toys = fingerprint(net_arm(net_stage()), (0,))["code_hash"]
    assert toys not in hashes
