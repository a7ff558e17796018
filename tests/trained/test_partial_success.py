"""What fails costs its seed or arm only, is named, and is taken up again."""

import errno
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.toy import Net, bowl_arm, bowl_stage, net_arm, net_stage, squared_error
from trained import trainer
from trained.arm import Arm, gradient_descent
from trained.errors import BadInput, Busy, Incomplete
from trained.lock import owned
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import restore, train

NewRun = Callable[..., Run]
BATCHINGS = ("vmap", "loop")


class Weather:
    """Spoils the loss of the nets whose first weight is known, while it is bad."""

    def __init__(self, *seeds: int) -> None:
        self.bad = [float(Net(seed).shift[0]) for seed in seeds]

    def loss(self, model: Net, data: dict[str, Tensor]) -> Tensor:
        spoilt = sum(
            ((model.shift[0] == bad) * 1.0 for bad in self.bad), torch.zeros(())
        )
        return squared_error(model, data) + torch.where(spoilt > 0, math.nan, 0.0)


def arm_under(weather: Weather, **fields: object) -> Arm:
    return net_arm(net_stage(loss=weather.loss), save_steps=(0, 4), **fields)


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_seed_whose_loss_is_not_a_number_costs_that_seed_only(
    new_run: NewRun, batching: str
) -> None:
    engine = Engine(batching=batching)
    healthy, run = new_run("healthy"), new_run("run")
    train(healthy, [arm_under(Weather())], engine=engine)
    arm = arm_under(Weather(1))
    with pytest.raises(
        Incomplete, match="net: seed 1: its loss is not finite at step 0"
    ):
        train(run, [arm], engine=engine)
    assert not run.is_done("net")
    assert run.record("net")["seeds"] == [0, 4]
    assert list(run.failed("net")) == [1]
    for step in (0, 4, 9):
        for name, tensor in run.weights("net", step).items():
            assert torch.equal(tensor, healthy.weights("net", step)[name][[0, 2]])
    for name, values in run.metrics("net").items():
        expected = healthy.metrics("net")[name]
        assert torch.equal(values, expected if name == "step" else expected[[0, 2]])
    assert restore(run, arm, 4) is not None
    with pytest.raises(BadInput, match="has no seed 1"):
        restore(run, arm, 1)
    with pytest.raises(BadInput, match="arm net lacks seed 1: its loss is not finite"):
        run.verify("net", (0, 1, 4))


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_seed_that_failed_is_taken_up_again(new_run: NewRun, batching: str) -> None:
    engine, weather = Engine(batching=batching), Weather(1)
    arm, run, healthy = arm_under(weather), new_run("run"), new_run("healthy")
    train(healthy, [arm_under(Weather())], engine=engine)
    for _ in range(2):
        with pytest.raises(Incomplete, match="seed 1"):
            train(run, [arm], engine=engine)
    weather.bad = []
    train(run, [arm], engine=engine)
    assert run.is_done("net")
    assert run.record("net")["seeds"] == [0, 1, 4]
    for step in (0, 4, 9):
        torch.testing.assert_close(
            run.weights("net", step), healthy.weights("net", step)
        )
    assert not list((run.path / "net").glob("group-*"))


def test_a_seed_that_fails_in_mid_training_leaves_the_others_their_bits(
    new_run: NewRun,
) -> None:
    stage = bowl_stage(steps=9, optimiser=gradient_descent(3.0), clip=None)
    starts = {0: (0.0, 0.0), 1: (1e18, 0.0), 2: (1e-3, 2.0)}
    run, pair = new_run("run", (0, 1, 2)), new_run("pair", (0, 2))
    with pytest.raises(Incomplete, match="seed 1: its loss is not finite at step 5"):
        train(run, [bowl_arm(starts, stage)], engine=Engine(batching="vmap"))
    train(pair, [bowl_arm(starts, stage)], engine=Engine(batching="vmap"))
    assert run.record("bowl")["seeds"] == [0, 2]
    assert run.record("bowl")["files"] == pair.record("bowl")["files"]


def test_no_state_is_kept_that_is_beyond_help(new_run: NewRun) -> None:
    """A seed is taken up from where it was still sound, not from its last moment."""
    stage = bowl_stage(steps=9, optimiser=gradient_descent(1e30))
    arm = bowl_arm({1: (1.0, 0.0)}, stage, record_every=1000)
    run = new_run(seeds=(1,))
    with pytest.raises(Incomplete, match="its weights are not finite at step 2"):
        train(run, [arm], engine=Engine(save_seconds=0.0))
    assert not run.is_stored("bowl")


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_full_disk_costs_the_arm_that_met_it(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, batching: str
) -> None:
    arms = [net_arm(net_stage(), name=name) for name in ("one", "two", "three")]
    run, engine = new_run(), Engine(batching=batching)
    write = trainer.write_checked

    def full(file, *rest):  # type: ignore[no-untyped-def]
        if "two" in str(file):
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        write(file, *rest)

    told = []

    class Diary(Observer):
        def on_failure(self, arm: Arm, error: Exception) -> None:
            told.append((arm.name, type(error)))

    monkeypatch.setattr(trainer, "write_checked", full)
    with pytest.raises(Incomplete, match=r"not trained: two: .*No space left"):
        train(run, arms, engine=engine, observer=Diary())
    assert [run.is_done(arm.name) for arm in arms] == [True, False, True]
    assert told == [("two", Incomplete)]
    monkeypatch.undo()
    train(run, arms, engine=engine)
    assert run.record("two")["files"] == run.record("one")["files"]


def test_what_the_user_can_mend_is_said_as_it_is_once_the_others_are_done(
    new_run: NewRun,
) -> None:
    arms = [
        net_arm(net_stage(trainable=("third*",)), name="bad"),
        net_arm(net_stage(), name="good"),
    ]
    run = new_run()
    with pytest.raises(BadInput, match="matches no parameter"):
        train(run, arms, engine=Engine())
    assert run.is_done("good")


def test_a_run_that_somebody_trains_is_refused(new_run: NewRun) -> None:
    run = new_run()
    with owned(run.path), pytest.raises(Busy, match="is training"):
        train(run, [net_arm(net_stage())], engine=Engine())
    assert not run.is_stored("net")
    train(run, [net_arm(net_stage())], engine=Engine())
    with owned(run.path):
        train(run, [net_arm(net_stage())], engine=Engine())
