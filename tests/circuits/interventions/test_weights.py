"""Edited weights break the wired circuit; the model itself stays as it was."""

import pytest
import torch
from torch import nn

from circuits.interventions.weights import edited
from tests.ground_truth import LOGIT, GroundTruth, accuracy
from tests.intervention_pairs import random_decoder, random_pair
from trained.errors import BadInput


def without_head(number: int):
    def edit(weight):
        weight[number] = 0
        return weight

    return edit


def test_without_a_wired_head_the_answer_is_gone(two_hop: GroundTruth) -> None:
    for wired in two_hop.circuit:
        name = f"blocks.{wired.layer}.attn.W_O"
        changed = edited(two_hop.model, {name: without_head(wired.head)})
        assert accuracy(two_hop, changed(two_hop.tokens)) <= 0.5
    assert accuracy(two_hop, two_hop.model(two_hop.tokens)) == 1


def test_without_idle_heads_it_is_not(two_hop: GroundTruth) -> None:
    changed = edited(two_hop.model, {"blocks.*.attn.W_O": without_head(1)})
    for block in changed.blocks:
        assert float(block.attn.W_O[1].detach().abs().max()) == 0
    assert accuracy(two_hop, changed(two_hop.tokens)) == 1


def test_an_exchanged_table_moves_the_answer(two_hop: GroundTruth) -> None:
    """Bridges one further on lead to objects one further on."""
    table = two_hop.subspaces["bridge"]

    def turned(weight):
        weight[0, :, table] = weight[0, :, table].roll(1, 1)
        return weight

    changed = edited(two_hop.model, {"blocks.0.attn.W_O": turned})
    answers = changed(two_hop.tokens)[:, -1].argmax(-1)
    assert torch.equal(answers, two_hop.targets.roll(-1))


def test_where_there_is_no_circuit_nothing_is_lost(uninformed: GroundTruth) -> None:
    changed = edited(uninformed.model, {"blocks.*.attn.W_O": torch.zeros_like})
    plain = uninformed.model(uninformed.tokens)
    assert torch.equal(changed(uninformed.tokens), plain)


def test_a_halved_unembedding_halves_the_logits(two_hop: GroundTruth) -> None:
    changed = edited(two_hop.model, {"unembedding": lambda weight: weight / 2})
    right = changed(two_hop.tokens)[:, -1].gather(1, two_hop.targets[:, None])
    assert right.tolist() == [[LOGIT / 2]] * 6


def test_an_edit_and_its_inverse_are_none() -> None:
    model, (clean, _, _) = random_decoder(), random_pair()
    there = edited(model, {"*.W_in": lambda weight: weight * 2})
    back = edited(there, {"*.W_in": lambda weight: weight / 2})
    assert not torch.equal(there(clean.tokens), model(clean.tokens))
    assert torch.equal(back(clean.tokens), model(clean.tokens))
    in_turn = {"*.0.mlp.W_in": lambda w: w + 1, "blocks.0.mlp.W_in": lambda w: w - 1}
    both = edited(model, in_turn)
    torch.testing.assert_close(both(clean.tokens), model(clean.tokens))


def test_tied_weights_change_once_and_together() -> None:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    changed = edited(nn.Sequential(first, second), {"*.weight": lambda w: w * 2})
    assert changed[0].weight is changed[1].weight
    assert torch.equal(changed[1].weight, 2 * first.weight)


def test_buffers_can_be_edited() -> None:
    """Without its mask the decoder looks ahead."""
    model, (clean, corrupt, _) = random_decoder(), random_pair()
    changed = edited(model, {"blocks.*.attn.mask": torch.zeros_like})
    assert torch.equal(model(clean.tokens)[:, 0], model(corrupt.tokens)[:, 0])
    assert not torch.equal(changed(clean.tokens)[:, 0], changed(corrupt.tokens)[:, 0])


def test_edits_that_cannot_be_are_named() -> None:
    model = random_decoder()
    with pytest.raises(BadInput, match=r"unknown weight 'W_X' .*W_E, W_pos, blocks\.0"):
        edited(model, {"W_X": torch.zeros_like})
    with pytest.raises(BadInput, match="edit of W_E left W_E unchanged"):
        edited(model, {"W_E": torch.clone})
    with pytest.raises(BadInput, match=r"W_E changed the shape from \(13, 12\) to \(1"):
        edited(model, {"W_E": lambda weight: weight[:1]})
