"""Drafts that are checked give what a step-by-step rollout gives."""

import pytest
import torch

from tests.lego_models import N_VARIABLES, sentences, wired
from trained.lego.action import action
from trained.lego.standard import Sizes, StandardModel
from trained.lego.task import (
    Prediction,
    Vocabulary,
    rollout,
    table_of,
    verified_rollout,
)

WORDS = Vocabulary(N_VARIABLES, 3, 3)
TABLE = table_of(action("C3"))


@pytest.mark.parametrize("score", [30.0, 2.8, 2.4])
@torch.no_grad()
def test_drafts_lead_to_the_rollout(score: float) -> None:
    model, batch = wired(score=score), sentences(9, 40)
    one_by_one = rollout(model, batch, WORDS)
    checked = verified_rollout(model, batch, WORDS, TABLE)
    assert torch.equal(one_by_one.values, checked.values)
    assert torch.equal(one_by_one.variables, checked.variables)
    assert torch.equal(one_by_one.values, batch.values) == (score == 30.0)


@torch.no_grad()
def test_a_model_that_knows_nothing_needs_a_pass_for_every_step() -> None:
    sizes = Sizes(d_token=4, d_mlp=8)
    model = StandardModel(WORDS, sizes, generator=torch.Generator().manual_seed(1))
    passes = []

    def counted(tokens: torch.Tensor, **how: int) -> Prediction:
        passes.append(len(tokens))
        return model(tokens, **how)

    batch = sentences(6, 10)
    checked = verified_rollout(counted, batch, WORDS, TABLE)
    assert torch.equal(rollout(model, batch, WORDS).values, checked.values)
    assert len(passes) <= 6
    passes.clear()
    verified_rollout(wired_reader(passes), batch, WORDS, TABLE)
    assert len(passes) == 1


def wired_reader(passes: list[int]):  # type: ignore[no-untyped-def]
    model = wired()

    def read(tokens: torch.Tensor, **how: int) -> Prediction:
        passes.append(len(tokens))
        return model(tokens, **how)

    return read
