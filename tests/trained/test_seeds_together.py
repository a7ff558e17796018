"""Seeds are trained as one program, and each as if it were alone."""

import subprocess
import sys

import pytest
import torch

from tests.engine_runs import (
    BATCHINGS,
    DRAWS,
    OPTIMISERS,
    InterruptAfter,
    Interrupted,
    NewRun,
    trained,
)
from tests.toy import (
    Net,
    bowl_arm,
    bowl_stage,
    net_arm,
    net_stage,
    squared_error,
    two_stage_arm,
)
from trained.trainer import Engine
from trained.training import begin_arm, train


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


# Thirteen calls, which give 112 bytes per unit of width.
@pytest.mark.parametrize(
    ("width", "stop_below", "groups"),
    [(16_000, None, 2), (14_000, None, 1), (14_000, 0.1, 2), (8_000, 0.1, 1)],
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
