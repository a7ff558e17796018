"""Data drawn ahead are those that are asked for, whenever that is."""

import threading

import pytest
import torch

from trained.ahead import ahead


def test_on_the_cpu_nothing_is_drawn_ahead() -> None:
    def draw(step: int) -> torch.Tensor:
        return torch.tensor(step)

    with ahead(draw, 3, "cpu") as at:
        assert at is draw


@pytest.mark.parametrize("asked", [(0, 1, 2, 3), (2, 3), (0, 3), (3,), (1, 1, 0, 5)])
def test_the_data_of_a_step_are_its_own(asked: tuple[int, ...]) -> None:
    drawn: list[int] = []

    def draw(step: int) -> torch.Tensor:
        assert threading.current_thread() is not threading.main_thread()
        drawn.append(step)
        return torch.tensor(step)

    with ahead(draw, 4, "meta") as at:
        assert [int(at(step)) for step in asked] == list(asked)
    assert max(drawn) <= max(3, *asked)


def test_what_goes_wrong_while_drawing_is_told_who_asks() -> None:
    def draw(step: int) -> torch.Tensor:
        raise ValueError(f"no step {step}")

    with ahead(draw, 4, "meta") as at, pytest.raises(ValueError, match="no step 2"):
        at(2)
