"""The engine: what it computes, and that no interruption or batching changes it."""

import math
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.toy import (
    SEEDS,
    Net,
    bowl_arm,
    bowl_stage,
    height,
    long_arm,
    net_arm,
    net_stage,
    points,
    squared_error,
    start_run,
    two_stage_arm,
)
from trained.arm import Arm, Optimiser, Stage, adam, gradient_descent
from trained.errors import BadInput, Incomplete
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import begin_arm, restore, train

ROOT = Path(__file__).parents[2]
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


# Seeds as one program.


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_stacked_seeds_match_a_loop_over_seeds(
    new_run: NewRun, optimiser: str, draw: str
) -> None:
    stage = net_stage(optimiser=OPTIMISERS[optimiser], clip=1.0, **DRAWS[draw])
    arm = net_arm(stage, save_steps=(0, 4))
    stacked, looped = (trained(new_run(b), arm, b) for b in BATCHINGS)
    assert stacked.record("net")["batching"] == "vmap"
    assert looped.record("net")["batching"] == "loop"
    for step in (0, 4, 9):
        torch.testing.assert_close(
            stacked.weights("net", step), looped.weights("net", step)
        )
    torch.testing.assert_close(stacked.metrics("net"), looped.metrics("net"))
    assert not torch.equal(stacked.weights("net", 9)["first"][0], Net(0).first)


def test_a_seed_is_trained_the_same_alone_or_among_others(new_run: NewRun) -> None:
    arm = net_arm(net_stage(batch_size=5, perturb=0.1))
    together = trained(new_run("together", (0, 1, 4)), arm).weights("net")
    alone = trained(new_run("alone", (4,)), arm).weights("net")
    torch.testing.assert_close(
        {name: tensor[2:] for name, tensor in together.items()}, alone
    )


def test_small_steps_are_stacked_when_nobody_chooses(new_run: NewRun) -> None:
    run = trained(new_run(), net_arm(net_stage()), "auto")
    assert run.record("net")["batching"] == "vmap"


# Some dozen calls, two of which multiply: 72 or 96 operations per unit of width.
@pytest.mark.parametrize(
    ("width", "stop_below", "groups"),
    [(400_000, None, 2), (190_000, None, 1), (190_000, 0.1, 2), (100_000, 0.1, 1)],
)
def test_large_steps_are_not_stacked_and_those_of_seeds_that_stop_even_less(
    new_run: NewRun, width: int, stop_below: float | None, groups: int
) -> None:
    stage = net_stage(steps=1, stop_below=stop_below)
    wide = net_arm(stage, build=lambda seed: Net(seed, width=width))
    run = new_run(seeds=(0, 1))
    assert begin_arm(run, wide, engine=Engine()) == groups


def test_the_same_request_has_the_same_bits_idle_loaded_and_killed(
    new_run: NewRun,
) -> None:
    arm = two_stage_arm(4)
    idle = trained(new_run("idle"), arm, "auto")
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)
    ]
    try:
        loaded = trained(new_run("loaded"), arm, "auto")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    killed = new_run("killed")
    engine = Engine(save_seconds=0.0)
    with pytest.raises(Interrupted):
        train(killed, [arm], engine=engine, observer=InterruptAfter(3))
    # Another choice on the way back changes nothing: the stored one is obeyed.
    train(killed, [arm], engine=Engine(batching="loop"))
    files = [run.record("net")["files"] for run in (idle, loaded, killed)]
    assert files[0] == files[1] == files[2]


def test_training_keeps_to_the_threads_of_its_arm(new_run: NewRun) -> None:
    seen = []

    def loss(model: Net, data: dict[str, torch.Tensor]) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return squared_error(model, data)

    before = torch.get_num_threads()
    run = trained(new_run(), net_arm(net_stage(loss=loss), threads=2))
    assert set(seen) == {2}
    assert torch.get_num_threads() == before
    assert run.record("net")["threads"] == 2


def test_an_arm_may_train_fewer_seeds_than_the_run(new_run: NewRun) -> None:
    run = trained(new_run(), net_arm(net_stage(), max_seeds=2))
    assert run.record("net")["seeds"] == [0, 1]
    assert len(run.weights("net")["first"]) == 2


# What a step does.


def test_gradient_descent_in_a_bowl_follows_the_trajectory_worked_by_hand(
    new_run: NewRun,
) -> None:
    arm = bowl_arm({0: (8.0, 0.0), 1: (0.0, -4.0)}, bowl_stage(), save_steps=(0, 1, 3))
    run = trained(new_run(seeds=(0, 1)), arm)
    path = [run.weights("bowl", step) for step in (0, 1, 3, 4)]
    assert [p["a"].tolist() for p in path] == [[8, 0], [4, 0], [1, 0], [0.5, 0]]
    assert [p["b"].tolist() for p in path] == [[0, -4], [0, -2], [0, -0.5], [0, -0.25]]
    metrics = run.metrics("bowl")
    assert metrics["step"].tolist() == [0, 1, 2, 3, 4]
    assert metrics["loss"].tolist() == [
        [32, 8, 2, 0.5, 0.125],
        [8, 2, 0.5, 0.125, 0.03125],
    ]


def test_metrics_are_recorded_at_their_steps_on_held_out_data(new_run: NewRun) -> None:
    arm = bowl_arm(
        {0: (8.0, 0.0)},
        bowl_stage(steps=5),
        metrics={
            "a": lambda model, _data: model.a,
            "held out": lambda model, data: model.a + data.sum(),
        },
        held_out=lambda seed: torch.tensor([100.0 + seed]),
        record_every=2,
    )
    metrics = trained(new_run(seeds=(0,)), arm).metrics("bowl")
    assert metrics["step"].tolist() == [0, 2, 4, 5]
    assert metrics["a"].tolist() == [[8, 2, 0.5, 0.25]]
    assert metrics["held out"].tolist() == [[108, 102, 100.5, 100.25]]


def test_the_learning_rate_follows_warm_up_and_decay(new_run: NewRun) -> None:
    optimiser = Optimiser("gd", 0.5, warmup=2, decay=0.5)
    stage = bowl_stage(steps=4, optimiser=optimiser)
    arm = bowl_arm({0: (8.0, 0.0)}, stage, save_steps=(1, 2, 3))
    run = trained(new_run(seeds=(0,)), arm)
    # Rates 0.25, 0.5, 0.5, 0.25: factors 0.75, 0.5, 0.5, 0.75.
    path = [run.weights("bowl", step)["a"].item() for step in (1, 2, 3, 4)]
    assert path == [6, 3, 1.5, 1.125]


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_frozen_parts_stay_bit_identical(new_run: NewRun, optimiser: str) -> None:
    stage = net_stage(
        optimiser=OPTIMISERS[optimiser], trainable=("sec*",), perturb=0.1, clip=1.0
    )
    run = trained(new_run(), net_arm(stage, save_steps=(0,)))
    start = {seed: Net(seed).state_dict() for seed in SEEDS}
    for step in (0, 9):
        for index, seed in enumerate(SEEDS):
            weights = run.weights("net", step)
            assert torch.equal(weights["first"][index], start[seed]["first"])
            assert torch.equal(weights["shift"][index], start[seed]["shift"])
            assert not torch.equal(weights["second"][index], start[seed]["second"])


def test_gradients_are_clipped_for_each_seed_over_all_its_parameters(
    new_run: NewRun,
) -> None:
    stage = bowl_stage(steps=1, optimiser=gradient_descent(1.0), clip=1.0)
    arm = bowl_arm({0: (3.0, 4.0), 1: (0.5, 0.0)}, stage)
    weights = trained(new_run(seeds=(0, 1)), arm).weights("bowl")
    # Seed 0's gradient (3, 4) has norm 5 and becomes (0.6, 0.8); seed 1's is short.
    assert weights["a"].tolist() == pytest.approx([2.4, 0.0])
    assert weights["b"].tolist() == pytest.approx([3.2, 0.0])


def test_gradients_of_an_earlier_stage_do_not_count_in_the_next(
    new_run: NewRun,
) -> None:
    stages = (
        bowl_stage(name="both", steps=1),
        bowl_stage(name="one", steps=1, trainable=("a",), clip=1.0),
    )
    run = trained(new_run(seeds=(0,)), bowl_arm({0: (0.5, 16.0)}, *stages))
    # In stage two the gradient is (0.25,): nothing to clip, whatever b's was before.
    assert run.weights("bowl")["a"].item() == 0.125


def test_gradients_can_be_edited_before_the_step(new_run: NewRun) -> None:
    seen: list[tuple[int, ...]] = []

    def hold_b(gradients: dict[str, Tensor]) -> None:
        seen.append(tuple(gradients["b"].shape))
        gradients["b"].zero_()

    arm = bowl_arm(
        {0: (8.0, 4.0), 1: (4.0, 2.0)}, bowl_stage(steps=2, edit_gradients=hold_b)
    )
    weights = trained(new_run(seeds=(0, 1)), arm).weights("bowl")
    assert weights["a"].tolist() == [2, 1]
    assert weights["b"].tolist() == [4, 2]
    assert seen == [(2,), (2,)]


def test_a_perturbation_lies_in_its_ball_and_belongs_to_its_seed(
    new_run: NewRun,
) -> None:
    seeds = tuple(range(8))
    stage = net_stage(steps=1, optimiser=gradient_descent(0.0), perturb=0.1)
    weights = trained(new_run(seeds=seeds), net_arm(stage)).weights("net")
    moves = torch.stack(
        [
            torch.cat(
                [
                    (weights[name][index] - getattr(Net(seed), name)).flatten()
                    for name in ("first", "second")
                ]
            ).detach()
            for index, seed in enumerate(seeds)
        ]
    )
    lengths = moves.norm(dim=1)
    assert (lengths > 0).all()
    # Weights near 1 round each of the 16 differences by at most 1.2e-7.
    assert (lengths <= 0.1 + 16 * 1.2e-7).all()
    assert len(moves.unique(dim=0)) == len(seeds)


# A seed stops alone.


STARTS = {0: (1.0, 0.0), 1: (4.0, 0.0), 2: (64.0, 0.0)}
"""The loss a^2 / 2 is below 0.1 from a = 0.25 on: after 2, 4 and (not in 6) 8 steps."""


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_seed_that_is_good_enough_stops_alone(new_run: NewRun, batching: str) -> None:
    arm = bowl_arm(STARTS, bowl_stage(steps=6, stop_below=0.1), save_steps=(1, 2, 3, 4))
    run = trained(new_run(seeds=(0, 1, 2)), arm, batching)
    path = [run.weights("bowl", step)["a"].tolist() for step in (1, 2, 3, 4, 6)]
    assert path == [
        [0.5, 2, 32],
        [0.25, 1, 16],
        [0.25, 0.5, 8],
        [0.25, 0.25, 4],
        [0.25, 0.25, 1],
    ]
    assert run.record("bowl")["stopped_at"] == [[2], [4], [-1]]


@pytest.mark.parametrize("batching", BATCHINGS)
def test_records_after_a_stop_show_where_the_seed_stands(
    new_run: NewRun, batching: str
) -> None:
    arm = bowl_arm(
        {0: (1.0, 0.0), 1: (4.0, 0.0)},
        bowl_stage(steps=8, stop_below=0.1),
        metrics={"a": lambda model, _data: model.a},
        held_out=lambda _seed: torch.zeros(1),
        record_every=3,
    )
    metrics = trained(new_run(seeds=(0, 1)), arm, batching).metrics("bowl")
    assert metrics["step"].tolist() == [0, 3, 6, 8]
    assert metrics["a"].tolist() == [[1, 0.25, 0.25, 0.25], [4, 0.5, 0.25, 0.25]]
    assert metrics["loss"].tolist() == [
        [0.5, 0.03125, 0.03125, 0.03125],
        [8, 0.125, 0.03125, 0.03125],
    ]


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_early_stops_are_the_same_stacked_and_in_a_loop(
    new_run: NewRun, optimiser: str
) -> None:
    stages = (
        net_stage(steps=40, optimiser=OPTIMISERS[optimiser], stop_below=1.0),
        net_stage(name="again", steps=5, optimiser=OPTIMISERS[optimiser]),
    )
    arm = net_arm(*stages, save_steps=(20, 39), record_every=7)
    stacked, looped = (trained(new_run(b), arm, b) for b in BATCHINGS)
    stops = [stop for stop, _ in stacked.record("net")["stopped_at"]]
    assert max(stops) > -1
    assert len(set(stops)) > 1
    assert stacked.record("net")["stopped_at"] == looped.record("net")["stopped_at"]
    for step in (20, 39, 45):
        torch.testing.assert_close(
            stacked.weights("net", step), looped.weights("net", step)
        )
    torch.testing.assert_close(stacked.metrics("net"), looped.metrics("net"))


# Those who watch.


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


def test_an_observer_hears_of_every_step_epoch_and_arm(new_run: NewRun) -> None:
    diary = Diary()
    # Twelve rows, six at a time: an epoch is two steps.
    arms = [net_arm(net_stage(steps=4, batch_size=6), name="one")]
    arms.append(net_arm(net_stage(steps=1), name="two"))
    engine = Engine(batching="vmap")
    train(new_run(), arms, engine=engine, observer=diary)
    assert diary.events == [
        ("arm", "one", SEEDS),
        ("step", "one", 0),
        ("step", "one", 1),
        ("epoch", "one", 1),
        ("step", "one", 2),
        ("step", "one", 3),
        ("epoch", "one", 2),
        ("finish", "one"),
        ("arm", "two", SEEDS),
        ("step", "two", 0),
        ("finish", "two"),
    ]


def test_an_observer_sees_the_losses_before_each_step(new_run: NewRun) -> None:
    diary = Diary()
    arm = bowl_arm({0: (4.0, 0.0)}, bowl_stage(steps=3))
    train(new_run(seeds=(0,)), [arm], engine=Engine(), observer=diary)
    assert torch.cat(diary.losses).tolist() == [8, 2, 0.5]


def test_an_epoch_shows_every_row_once(new_run: NewRun) -> None:
    seen: list[Tensor] = []

    def spy(model: Net, data: dict[str, Tensor]) -> Tensor:
        seen.append(data["x"].detach())
        return (model(data["x"]) - data["y"]).square().mean()

    arm = net_arm(net_stage(steps=6, batch_size=5, loss=spy), metrics={}, held_out=None)
    trained(new_run(seeds=(0,)), arm, "loop")
    rows = points(0, 0)["x"]
    first, second = torch.cat(seen[:3]), torch.cat(seen[3:6])
    for epoch in (first, second):
        assert torch.equal(epoch.sort(dim=0).values, rows.sort(dim=0).values)
    assert not torch.equal(first, second)


def test_a_finished_arm_is_not_trained_again(new_run: NewRun) -> None:
    run, diary = trained(new_run(), net_arm(net_stage())), Diary()
    train(run, [net_arm(net_stage())], engine=Engine(), observer=diary)
    assert diary.events == []


# What cannot be trained.


def test_a_loss_that_is_not_finite_is_refused_and_nothing_stored_is_lost(
    new_run: NewRun,
) -> None:
    run = trained(new_run(seeds=(3, 5)), net_arm(net_stage(), name="good"))
    before = run.weights("good")
    explode = bowl_stage(steps=9, optimiser=gradient_descent(1e30))
    bad = bowl_arm({3: (0.0, 0.0), 5: (1.0, 0.0)}, explode, save_steps=(0,))
    with pytest.raises(Incomplete, match="bowl: seed 5: its loss is not finite"):
        trained(run, bad)
    assert run.is_done("good")
    assert_equal(run.weights("good"), before)
    assert not run.is_done("bowl")


@pytest.mark.parametrize("steps", [1, 3])
def test_a_loss_that_is_not_a_number_is_refused_even_at_the_last_step(
    new_run: NewRun, steps: int
) -> None:
    stage = bowl_stage(steps=steps, loss=lambda m, d: height(m, d) * math.nan)
    arm = bowl_arm({0: (1.0, 0.0)}, stage, record_every=100)
    with pytest.raises(Incomplete, match="not finite at step 0"):
        trained(new_run(seeds=(0,)), arm)


def test_a_stage_that_would_train_nothing_is_refused(new_run: NewRun) -> None:
    arm = net_arm(net_stage(trainable=("third*",)))
    with pytest.raises(BadInput, match=r"stage fit: .*third.* matches no parameter"):
        trained(new_run(), arm)


# Interruptions.


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


# Two stages of four steps: 8 steps stacked. In a loop 22, as the second seed stops
# after two steps of its first stage. Steps 4 and 5 are the two sides of the border; a
# loop's step 8 is the last of its first seed, 10 and 11 are around the second's stop.
STEPS = {"vmap": 8, "loop": 22}
PLACES = [("vmap", k) for k in (1, 2, 4, 5, 8)]
PLACES += [("loop", k) for k in (1, 4, 5, 8, 9, 10, 11, 14, 15, 22)]


@pytest.mark.parametrize(("batching", "steps"), PLACES)
def test_an_interrupted_run_goes_on_to_the_same_bits(
    new_run: NewRun, batching: str, steps: int
) -> None:
    arm = two_stage_arm(4)
    unbroken = trained(new_run("unbroken"), arm, batching)
    engine = Engine(batching=batching, save_seconds=0.0)
    broken = new_run("broken")
    with pytest.raises(Interrupted):
        train(broken, [arm], engine=engine, observer=InterruptAfter(steps))
    assert not broken.is_done("net")
    diary = Diary()
    train(broken, [arm], engine=engine, observer=diary)
    taken = [event for event in diary.events if event[0] == "step"]
    # Only the interrupted step is repeated.
    assert len(taken) == STEPS[batching] - steps + 1
    assert_same_run(unbroken, broken, "net")


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_run_interrupted_at_every_step_ends_with_the_same_bits(
    new_run: NewRun, batching: str
) -> None:
    arm = two_stage_arm(4)
    unbroken = trained(new_run("unbroken"), arm, batching)
    engine, broken = Engine(batching=batching, save_seconds=0.0), new_run("broken")
    for _ in range(STEPS[batching]):
        # The second step of each attempt ends it; the first repeats the one before.
        with suppress(Interrupted):
            train(broken, [arm], engine=engine, observer=InterruptAfter(2))
    assert_same_run(unbroken, broken, "net")


@pytest.mark.parametrize("batching", BATCHINGS)
def test_a_run_interrupted_after_its_last_step_is_only_put_together(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, batching: str
) -> None:
    arm = two_stage_arm(4)
    unbroken = trained(new_run("unbroken"), arm, batching)
    broken = new_run("broken")

    def interrupt(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_weights", interrupt)
        with pytest.raises(Interrupted):
            trained(broken, arm, batching)
    diary = Diary()
    engine = Engine(batching=batching)
    train(broken, [arm], engine=engine, observer=diary)
    assert [event[0] for event in diary.events] == ["arm", "finish"]
    assert_same_run(unbroken, broken, "net")


def test_a_run_killed_in_mid_training_ends_with_the_same_bits(tmp_path: Path) -> None:
    code = f"from tests.toy import train_slowly; train_slowly({str(tmp_path)!r})"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 300:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    killed = Run.open(tmp_path)
    assert not killed.is_done("net")
    diary = Diary()
    arm = long_arm()
    train(killed, [arm], engine=Engine(), observer=diary)
    steps_taken = [event[2] for event in diary.events if event[0] == "step"]
    assert steps_taken[0] > 0
    unbroken = trained(start_run(tmp_path / "unbroken"), arm)
    assert_same_run(unbroken, killed, "net")


# What is stored comes back.


def test_a_restored_model_is_the_trained_one(new_run: NewRun) -> None:
    arm = net_arm(net_stage(), save_steps=(0,))
    run = trained(new_run(), arm)
    for index, seed in enumerate(SEEDS):
        start, end = restore(run, arm, seed, step=0), restore(run, arm, seed)
        assert not end.training
        assert_equal(start.state_dict(), Net(seed).state_dict())
        for name, tensor in run.weights("net").items():
            assert torch.equal(end.state_dict()[name], tensor[index])


def test_the_record_tells_the_data_apart(new_run: NewRun) -> None:
    def record(name: str, stage: Stage) -> str:
        return trained(new_run(name), net_arm(stage)).record("net")["data_hash"]

    shifted = net_stage(data=lambda seed, step: points(seed + 1, step))
    assert record("one", net_stage()) == record("two", net_stage())
    assert record("one", net_stage()) != record("three", shifted)
