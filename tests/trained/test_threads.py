"""The number of threads is set for a while and no longer."""

import pytest
import torch

from trained.training import threads


def test_threads_are_set_and_given_back_even_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), threads(before + 1):
        torch.ones(2) @ torch.ones(3)
    assert torch.get_num_threads() == before


def test_a_function_can_be_held_to_one_thread() -> None:
    assert threads(1)(torch.get_num_threads)() == 1
