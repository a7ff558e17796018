"""Batches and roles."""

import jaxtyping
import pytest
import torch
from torch.func import vmap

from trained.ensemble import stack
from trained.errors import BadInput
from trained.task import Batch, positions

TOKENS = torch.tensor([[5, 2, 7], [1, 4, 0]])


def batch() -> Batch:
    roles = {"query": positions([2], TOKENS), "pair": positions([0, 1], TOKENS)}
    return Batch(TOKENS, torch.tensor([3, 6]), roles=roles)


def test_a_role_sits_at_its_columns_in_every_prompt() -> None:
    assert batch().role("pair").tolist() == [[0, 1], [0, 1]]
    assert TOKENS.gather(1, batch().role("query")).flatten().tolist() == [7, 0]


def test_an_unknown_role_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(BadInput, match="unknown role 'answer'; choose from: last, p"):
        batch().role("answer")


def test_a_batch_without_roles_has_none() -> None:
    with pytest.raises(BadInput, match="unknown role 'query'"):
        Batch(TOKENS, torch.tensor([3, 6])).role("query")


def test_stacked_batches_are_seen_one_by_one_under_vmap() -> None:
    stacked = stack([batch(), batch()])
    assert isinstance(stacked, Batch)
    assert stacked.tokens.shape == (2, 2, 3)
    sums = vmap(lambda b: b.tokens.sum() + b.role("query").sum())(stacked)
    assert sums.tolist() == [23, 23]


def test_the_shapes_in_signatures_are_checked_while_testing() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        positions([0], torch.zeros(3, dtype=torch.int64))
