"""The number of threads, and what counts as zero, are set for a while and no longer."""

from collections.abc import Iterator

import pytest
import torch

from trained.threads import flushes_denormals, threads


def test_threads_are_set_and_given_back_even_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), threads(before + 1):
        torch.ones(2) @ torch.ones(3)
    assert torch.get_num_threads() == before


def test_a_function_can_be_held_to_one_thread() -> None:
    assert threads(1)(torch.get_num_threads)() == 1


@pytest.fixture
def denormals() -> Iterator[None]:
    """What counts as zero is given back, also by a test that fails."""
    before = flushes_denormals()
    yield
    torch.set_flush_denormal(before)


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this CPU cannot")
@pytest.mark.usefixtures("denormals")
@pytest.mark.parametrize("outside", [False, True])
def test_denormal_numbers_are_zero_inside_and_what_they_were_outside(
    outside: bool,
) -> None:
    # Enough of them for the vectorised kernels.
    small, usual = torch.full((64,), 2e-38), torch.full((64,), 2e-37)
    torch.set_flush_denormal(outside)
    with threads(1):
        assert flushes_denormals()
        assert not (small / 4).any()
        assert torch.equal(usual / 4, torch.full((64,), 5e-38))
    assert flushes_denormals() == outside
    assert bool((small / 4).any()) != outside
