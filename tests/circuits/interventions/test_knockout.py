"""Cut edges: the wired one breaks the answer, the others do not."""

import pytest
import torch

from circuits.hooks import record
from circuits.interventions.ablation import (
    Edges,
    edge_grid,
    knock_out,
    knockout_sweep,
)
from circuits.interventions.edit import renormalised
from circuits.interventions.part import Grid
from circuits.interventions.sweep import Reading, change, target_log_prob
from circuits.sites import Site
from tests.ground_truth import GroundTruth, OneQueryModel, accuracy
from tests.intervention_pairs import (
    one_at_a_time,
    pair_of,
    random_decoder,
    random_pair,
)
from trained.errors import BadInput
from trained.task import Batch, positions


def test_cutting_the_wired_edges_breaks_the_answer(two_hop: GroundTruth) -> None:
    """Position 0 reads itself, so it holds the bridge too: the second hop has both."""
    batch = Batch(two_hop.tokens, two_hop.targets)
    for edges in (Edges(0, 1, 0, (0,)), Edges(1, 2, (0, 1), (0,))):
        with knock_out(two_hop.model, batch, [edges]):
            assert accuracy(two_hop, two_hop.model(batch.tokens)) < 0.5
    assert accuracy(two_hop, two_hop.model(batch.tokens)) == 1


def test_a_cut_edge_leaves_its_weight_to_the_others(two_hop: GroundTruth) -> None:
    """Without r1, r2 reads positions 0 (the bridge) and 2 (nothing) by halves."""
    batch = Batch(two_hop.tokens, two_hop.targets)
    with knock_out(two_hop.model, batch, [Edges(1, "last", 1, (0,))]):
        logits = two_hop.model(batch.tokens)[:, -1]
    right = logits.gather(-1, batch.targets[:, None])[:, 0]
    torch.testing.assert_close(right, torch.full((6,), 5.0))


def test_cutting_other_edges_does_not(two_hop: GroundTruth) -> None:
    batch = Batch(two_hop.tokens, two_hop.targets)
    idle = [Edges(layer, 2, (0, 1), (head,)) for layer, head in two_hop.idle]
    with knock_out(two_hop.model, batch, idle):
        assert accuracy(two_hop, two_hop.model(batch.tokens)) == 1


def test_a_sweep_finds_the_wired_head(copy_head: GroundTruth) -> None:
    roles = {
        "source": positions([1], copy_head.tokens),
        "query": positions([3], copy_head.tokens),
    }
    batch = Batch(copy_head.tokens, copy_head.targets, roles=roles)
    grid = edge_grid([0], [0, 1], queries="query", keys="source")
    lost = change(
        knockout_sweep(copy_head.model, batch, grid, pair_of(copy_head).reading)
    )
    means = lost.mean("example").values[0]
    assert float(means[0]) < -5
    assert float(means[1]) == 0


def test_where_no_head_reads_nothing_is_lost(uninformed: GroundTruth) -> None:
    batch = Batch(uninformed.tokens, uninformed.targets)
    grid = edge_grid([0, 1], [0, 1], queries="last", keys=(0, 1))
    lost = change(
        knockout_sweep(uninformed.model, batch, grid, pair_of(uninformed).reading)
    )
    assert float(lost.values.abs().max()) == 0


def test_cut_edges_equal_scores_of_minus_infinity() -> None:
    model, (batch, _, _) = random_decoder(), random_pair()
    attention = model.blocks[1].attn

    def forbid(scores: torch.Tensor, hook: object) -> torch.Tensor:
        del hook
        scores = scores.clone()
        scores[:, 1, 3:, 1:3] = -torch.inf
        return scores

    attention.hook_attn_scores.add_hook(forbid)
    expected = model(batch.tokens)
    model.reset_hooks()
    site = Site("pattern", 1)
    edges = Edges(1, (3, 4), (1, 2), (1,))
    with knock_out(model, batch, [edges]), record(model, [site]) as seen:
        cut = model(batch.tokens)
    torch.testing.assert_close(cut, expected)
    rows = seen[site].sum(-1)
    torch.testing.assert_close(rows, torch.ones_like(rows))


def test_rows_are_renormalised_by_hand() -> None:
    before = torch.tensor([[[[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]]])
    cut = before.clone()
    cut[..., 0] = 0
    after = renormalised(cut, before)
    assert after.tolist() == [[[[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]]]
    assert torch.equal(renormalised(before, before), before)


def test_a_sweep_equals_one_at_a_time() -> None:
    model, (batch, _, reading) = random_decoder(), random_pair()
    grid = edge_grid(range(3), range(3), queries=(2, 4), keys=1)
    cells = [{edges.site: edges.without(batch)} for edges in grid.items]
    swept = knockout_sweep(model, batch, grid, reading)
    alone = one_at_a_time(model, batch, cells, reading)
    torch.testing.assert_close(swept.values.flatten(0, 1), alone)
    assert float(change(swept).values.abs().max()) > 1e-3


def test_edges_are_cut_in_a_model_of_one_query() -> None:
    model = OneQueryModel()
    tokens = torch.randint(16, (3, 6), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens, tokens[:, 0])
    grid = Grid({"key": (0, 1)}, (Edges(0, keys=0), Edges(0, keys=1)))
    swept = knockout_sweep(model, batch, grid, Reading(target_log_prob))
    cells = [{edges.site: edges.without(batch)} for edges in grid.items]
    alone = one_at_a_time(model, batch, cells, Reading(target_log_prob))
    torch.testing.assert_close(swept.values, alone)


def test_edges_without_weight_raise(two_hop: GroundTruth) -> None:
    """A query does not see later keys."""
    batch = Batch(two_hop.tokens, two_hop.targets)
    with (
        pytest.raises(BadInput, match=r"pattern\[0\] left every activation unchanged"),
        knock_out(two_hop.model, batch, [Edges(0, 0, 2)]),
    ):
        two_hop.model(batch.tokens)


def test_each_query_loses_its_own_key(copy_head: GroundTruth) -> None:
    """Query 1 may not read position 0, query 3 not position 1: only 3 needs it."""
    roles = {
        "queries": positions([1, 3], copy_head.tokens),
        "keys": positions([0, 1], copy_head.tokens),
    }
    batch = Batch(copy_head.tokens, copy_head.targets, roles=roles)
    edges = Edges(0, "queries", "keys", (0,), paired=True)
    site = Site("pattern", 0)
    with (
        knock_out(copy_head.model, batch, [edges]),
        record(copy_head.model, [site]) as s,
    ):
        logits = copy_head.model(batch.tokens)
    assert accuracy(copy_head, logits) == 0
    assert float(s[site][:, 0, 3, 1].max()) == 0
    # The cut of query 1 took nothing from it, that of query 3 not from query 1.
    assert float(s[site][:, 0, 1, 1].min()) > 0.99
    with knock_out(
        copy_head.model, batch, [Edges(0, "queries", "keys", (1,), paired=True)]
    ):
        assert accuracy(copy_head, copy_head.model(batch.tokens)) == 1
    with (
        pytest.raises(BadInput, match="2 queries 'queries' and 1 keys 0 cannot be"),
        knock_out(copy_head.model, batch, [Edges(0, "queries", 0, paired=True)]),
    ):
        copy_head.model(batch.tokens)
