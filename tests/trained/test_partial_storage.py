"""Arms that store only what they train, and metrics that share a forward pass."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.toy import SEEDS, Net, net_arm, net_stage, size, squared_error, start_run
from trained.errors import BadInput
from trained.trainer import Engine
from trained.training import restore, train

PARTIAL = net_arm(net_stage(trainable=("second",)), stores="trained")


@pytest.mark.parametrize("batching", ["vmap", "loop"])
def test_only_trained_parameters_are_stored_and_the_rest_is_built_again(
    tmp_path: Path, batching: str
) -> None:
    whole = replace(PARTIAL, stores="everything", name="whole")
    run = start_run(tmp_path)
    train(run, [PARTIAL, whole], engine=Engine(batching=batching))

    assert set(run.weights("net")) == {"second"}
    for seed in SEEDS:
        expected = restore(run, whole, seed).state_dict()
        found = restore(run, PARTIAL, seed).state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_an_interrupted_partial_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    engine = Engine(batching="loop", save_seconds=0.0)
    unbroken = start_run(tmp_path / "unbroken")
    train(unbroken, [PARTIAL], engine=engine)
    broken = start_run(tmp_path / "broken")
    calls = []

    def fail_once(model: Net, data: dict[str, Tensor]) -> Tensor:
        calls.append(1)
        if len(calls) == 14:
            raise KeyboardInterrupt
        return squared_error(model, data)

    stage = net_stage(trainable=("second",), loss=fail_once)
    arm = replace(PARTIAL, stages=(stage,))
    with pytest.raises(KeyboardInterrupt):
        train(broken, [arm], engine=engine)
    train(broken, [arm], engine=engine)

    assert torch.equal(
        broken.weights("net")["second"], unbroken.weights("net")["second"]
    )


def test_weights_are_not_put_into_another_base(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    train(run, [PARTIAL], engine=Engine())
    other = replace(PARTIAL, build=lambda seed: Net(seed + 1))
    with pytest.raises(BadInput, match="trained from another model"):
        restore(run, other, SEEDS[0])


def test_shared_metrics_equal_separate_ones(tmp_path: Path) -> None:
    def both(model: Net, data: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            "both/size": size(model, data),
            "both/error": squared_error(model, data),
        }

    for batching in ("vmap", "loop"):
        run = start_run(tmp_path / batching)
        train(
            run, [net_arm(net_stage(), measure=both)], engine=Engine(batching=batching)
        )
        metrics = run.metrics("net")
        assert torch.equal(metrics["both/size"], metrics["size"])
        assert torch.equal(metrics["both/error"], metrics["error"])


def test_an_arm_that_cannot_be_stacked_is_trained_seed_by_seed(tmp_path: Path) -> None:
    run = start_run(tmp_path)
    train(run, [net_arm(net_stage(), stackable=False)], engine=Engine(batching="vmap"))
    assert run.record("net")["batching"] == "loop"


class Tied(nn.Module):
    """One matrix under two names."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.into = nn.Linear(3, 3, bias=False)
        nn.init.constant_(self.into.weight, seed + 1.0)
        self.out = nn.Linear(3, 3, bias=False)
        self.out.weight = self.into.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.into(x)).sum(-1)


def test_tied_parameters_are_trained_and_restored_as_one(tmp_path: Path) -> None:
    arm = net_arm(net_stage(), build=Tied, metrics={}, held_out=None)
    run = start_run(tmp_path)
    train(run, [arm], engine=Engine())
    model = restore(run, arm, SEEDS[1])

    assert set(run.weights("net")) == {"into.weight"}
    assert model.out.weight is model.into.weight
    assert torch.equal(model.into.weight, run.weights("net")["into.weight"][1])
    assert not torch.equal(model.into.weight, Tied(SEEDS[1]).into.weight)
