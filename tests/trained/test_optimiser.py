"""Optimisers as data: their rules and their learning rates."""

import pytest
import torch

from trained.arm import Optimiser, adam, gradient_descent


def rates(optimiser: Optimiser, steps: int) -> list[float]:
    return [optimiser.rate(step, steps) for step in range(steps)]


def test_the_rate_is_constant_without_warm_up_and_decay() -> None:
    assert rates(adam(0.5), 3) == [0.5, 0.5, 0.5]


def test_the_rate_rises_linearly_over_the_warm_up() -> None:
    optimiser = Optimiser("gd", 1.0, warmup=4)
    assert rates(optimiser, 6) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_the_rate_falls_linearly_over_the_last_part_and_stays_positive() -> None:
    optimiser = Optimiser("gd", 1.0, decay=0.5)
    assert rates(optimiser, 8) == [1, 1, 1, 1, 1, 0.75, 0.5, 0.25]


def test_warm_up_and_decay_multiply() -> None:
    assert rates(Optimiser("gd", 1.0, warmup=2, decay=1.0), 2) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("optimiser", "reference"),
    [
        (gradient_descent(0.1, weight_decay=0.2), torch.optim.SGD),
        (adam(0.1), torch.optim.Adam),
        (Optimiser("adamw", 0.1, weight_decay=0.2), torch.optim.AdamW),
    ],
)
def test_each_kind_is_torchs_rule(
    optimiser: Optimiser, reference: type[torch.optim.Optimizer]
) -> None:
    ours, theirs = (torch.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
    rules = (
        optimiser.build([ours]),
        reference([theirs], lr=0.1, weight_decay=optimiser.weight_decay),
    )
    for _ in range(5):
        for tensor, rule in zip((ours, theirs), rules, strict=True):
            rule.zero_grad()
            tensor.square().sum().backward()
            rule.step()
    torch.testing.assert_close(ours, theirs)


def test_one_step_of_gradient_descent_by_hand() -> None:
    point = torch.tensor([3.0], requires_grad=True)
    rule = gradient_descent(0.25).build([point])
    point.square().sum().backward()
    rule.step()
    assert point.item() == 1.5
