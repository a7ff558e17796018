"""The engine: what a step computes, who is told, and what is stored."""

import math

import pytest
import torch
from torch import Tensor

from tests.engine_runs import (
    BATCHINGS,
    OPTIMISERS,
    Diary,
    NewRun,
    assert_equal,
    trained,
)
from tests.toy import (
    SEEDS,
    Bowl,
    Net,
    bowl_arm,
    bowl_stage,
    height,
    net_arm,
    net_stage,
    points,
)
from trained.arm import Optimiser, Stage, gradient_descent
from trained.errors import BadInput, Incomplete
from trained.trainer import Engine
from trained.training import restore, train

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


@pytest.mark.parametrize("batching", BATCHINGS)
def test_data_are_labelled_once_by_what_each_model_was_when_its_stage_began(
    new_run: NewRun, batching: str
) -> None:
    def label(model: Bowl, data: Tensor) -> Tensor:
        return data + model.b

    def from_the_label(model: Bowl, data: Tensor) -> Tensor:
        return 0.5 * (model.a - data.sum()).square()

    further = bowl_stage(
        name="towards b", steps=1, label=label, loss=from_the_label, trainable=("a",)
    )
    arm = bowl_arm({0: (8.0, 4.0), 1: (0.0, 8.0)}, bowl_stage(steps=1), further)
    weights = trained(new_run(seeds=(0, 1)), arm, batching).weights("bowl")
    # Halved by the first stage, b stays; a goes half of the way from 4 to 2, 0 to 4.
    assert weights["b"].tolist() == [2, 4]
    assert weights["a"].tolist() == [3, 2]


def test_data_drawn_each_step_are_not_labelled() -> None:
    with pytest.raises(ValueError, match="stage fall: only data drawn once"):
        bowl_stage(name="fall", draw="each step", label=lambda _, data: data)


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


# Those who watch.


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
