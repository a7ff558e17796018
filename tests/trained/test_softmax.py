"""Few keys or many, the softmax of scores is torch's, and so is its gradient."""

import pytest
import torch
from torch import Tensor

from trained.seeding import generator
from trained.softmax import FEW_KEYS, MANY, over_keys

FEW, MANY_KEYS, SMALL = (70, 2, 4, 5), (70, 2, 4, FEW_KEYS), (2, 2, 4, 5)
ONE_QUERY = (MANY, 1, 1, 3)


def drawn(shape: tuple[int, ...]) -> Tensor:
    """Scores with hidden keys, of which each query sees its first."""
    scores = torch.randn(shape, generator=generator(0, "softmax"))
    hidden = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -torch.inf).requires_grad_()


@pytest.mark.parametrize("shape", [FEW, MANY_KEYS, SMALL, ONE_QUERY])
def test_it_is_the_softmax_of_every_row(shape: tuple[int, ...]) -> None:
    scores = drawn(shape)
    expected, found = scores.softmax(-1), over_keys(scores)
    torch.testing.assert_close(found, expected)
    assert (found[..., 0, 1:] == 0).all()
    weights = torch.randn(shape, generator=generator(1, "softmax"))
    gradients = [
        torch.autograd.grad((pattern * weights).sum(), scores)[0]
        for pattern in (found, expected)
    ]
    torch.testing.assert_close(*gradients)


def test_only_few_keys_of_many_rows_are_laid_the_other_way() -> None:
    laid = {
        shape: not over_keys(drawn(shape)).is_contiguous()
        for shape in (FEW, MANY_KEYS, SMALL)
    }
    assert laid == {FEW: True, MANY_KEYS: False, SMALL: False}


def test_seeds_that_are_stacked_take_the_way_of_each() -> None:
    scores = drawn((3, *FEW))
    stacked = torch.func.vmap(over_keys)(scores)
    assert torch.equal(stacked, torch.stack([over_keys(one) for one in scores]))


def test_what_is_not_a_number_stays_none() -> None:
    scores = drawn(FEW).detach()
    scores[3, 1, 2, 0] = torch.nan
    wrong = over_keys(scores).isnan()
    assert wrong[3, 1, 2].all()
    assert wrong.sum() == wrong.shape[-1]
