"""AdamW with bfloat16 moments, against torch's own in float32."""

import pytest
import torch
from torch import nn

from circuits.tuning.optimiser import LeanAdamW, rounded


def quadratic(dtype: torch.dtype, make, steps: int) -> torch.Tensor:
    """Parameters after some steps down a bowl with a slope of its own on each axis."""
    source = torch.Generator().manual_seed(0)
    slopes = torch.rand(4000, generator=source) + 0.1
    start = torch.randn(4000, generator=source)
    parameter = nn.Parameter(start.to(dtype))
    step = make(parameter)
    for _ in range(steps):
        parameter.grad = (slopes * parameter.detach().float()).to(dtype)
        step()
    return parameter.detach().float()


def lean(parameter: nn.Parameter):
    return LeanAdamW({"p": parameter}, lr=1e-3, weight_decay=0.1).step


def plain(parameter: nn.Parameter):
    return torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.1).step


def test_the_first_step_by_hand() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    parameter.grad = torch.tensor([3.0, -4.0])
    optimiser = LeanAdamW({"p": parameter}, lr=0.1)
    # The norm is 5: halved by the scale, then clipped to 1. A first step of Adam has
    # the size of the rate whatever the gradient.
    assert optimiser.step(0.5, 1.0) == pytest.approx(2.5)
    assert parameter.tolist() == pytest.approx([0.9, -1.9], abs=1e-4)
    assert parameter.grad is None
    mean = optimiser.tensors()["p/mean"]
    assert mean.tolist() == pytest.approx([0.1 * 0.6, -0.1 * 0.8], rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_goes_where_torchs_goes(dtype: torch.dtype) -> None:
    """In bfloat16 too, whose resolution the updates are far below."""
    expected = quadratic(torch.float32, plain, 200)
    found = quadratic(dtype, lean, 200)
    moved = quadratic(torch.float32, plain, 0) - expected
    error = (found - expected).norm() / moved.norm()
    assert error < (0.01 if dtype == torch.float32 else 0.05)
    # The same steps on bfloat16 weights without what their rounding takes: lost.
    assert (quadratic(torch.bfloat16, plain, 200) - expected).norm() > 3 * error


def test_rounding_is_right_on_average_and_leaves_exact_values() -> None:
    source = torch.Generator().manual_seed(0)
    values = torch.rand(20_000, generator=source) + 0.5
    noise = torch.randint(2**16, (50, 20_000), generator=source, dtype=torch.int32)
    mean = torch.stack([rounded(values, row).float() for row in noise]).mean(0)
    assert float((mean - values).mean().abs()) < 2e-5
    exact = values.bfloat16().float()
    assert torch.equal(rounded(exact, noise[0]), exact.bfloat16())


def test_a_mean_of_squares_decays_below_the_resolution() -> None:
    """To nearest it would stay for ever: .999 x rounds to x in bfloat16."""
    parameter = nn.Parameter(torch.zeros(1000))
    optimiser = LeanAdamW({"p": parameter}, lr=1e-3)
    parameter.grad = torch.ones(1000)
    optimiser.step()
    first = float(optimiser.tensors()["p/square"].float().mean())
    for _ in range(500):
        parameter.grad = torch.zeros(1000)
        optimiser.step()
    last = float(optimiser.tensors()["p/square"].float().mean())
    assert last / first == pytest.approx(0.999**500, rel=0.05)


def test_state_can_be_stored_and_loaded() -> None:
    def two(optimiser: LeanAdamW, parameter: nn.Parameter, n: int) -> None:
        for _ in range(n):
            parameter.grad = parameter.detach().clone()
            optimiser.step()

    whole, half = (nn.Parameter(torch.arange(5.0)) for _ in range(2))
    two(LeanAdamW({"p": whole}, lr=0.1), whole, 4)
    before = LeanAdamW({"p": half}, lr=0.1)
    two(before, half, 2)
    after = LeanAdamW({"p": half}, lr=0.1)
    after.load({k: t.clone() for k, t in before.tensors().items()}, 2)
    two(after, half, 2)
    assert torch.equal(whole, half)
