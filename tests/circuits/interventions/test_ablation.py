"""Ablations break the wired circuit and nothing else."""

import pytest
import torch

from circuits.hooks import record
from circuits.interventions.ablation import ablate, ablation_sweep
from circuits.interventions.edit import Mean, Resample, Rule, Zero, part_edits
from circuits.interventions.part import Part, head_grid, layer_grid, position_grid
from circuits.interventions.passes import activations
from circuits.interventions.sweep import change
from circuits.sites import Site
from tests.ground_truth import GroundTruth, accuracy
from tests.intervention_pairs import (
    one_at_a_time,
    pair_of,
    random_decoder,
    random_pair,
)
from trained.errors import BadInput
from trained.task import Batch


def rules(batch: Batch) -> list[Rule]:
    return [Zero(), Mean([batch]), Mean([batch], over="examples"), Resample(batch, 0)]


@pytest.fixture(params=range(4))
def rule(request: pytest.FixtureRequest, two_hop: GroundTruth) -> Rule:
    return rules(Batch(two_hop.tokens, two_hop.targets))[request.param]


def head(layer: int, number: int) -> Part:
    return Part("head_out", layer, number)


def test_ablating_a_wired_head_breaks_the_answer(
    two_hop: GroundTruth, rule: Rule
) -> None:
    batch = Batch(two_hop.tokens, two_hop.targets)
    for wired in two_hop.circuit:
        with ablate(two_hop.model, batch, [head(wired.layer, wired.head)], rule):
            logits = two_hop.model(batch.tokens)
        assert accuracy(two_hop, logits) <= 0.5
    assert accuracy(two_hop, two_hop.model(batch.tokens)) == 1


def test_ablating_an_idle_head_does_not(two_hop: GroundTruth, rule: Rule) -> None:
    batch = Batch(two_hop.tokens, two_hop.targets)
    for layer, number in two_hop.idle:
        with ablate(two_hop.model, batch, [head(layer, number)], rule):
            logits = two_hop.model(batch.tokens)
        assert accuracy(two_hop, logits) == 1


def test_a_sweep_tells_wired_from_idle_heads(two_hop: GroundTruth) -> None:
    """Zero at the last position takes the 10 of the right logit."""
    batch, reading = pair_of(two_hop).clean, pair_of(two_hop).reading
    grid = head_grid("head_out", [0, 1], [0, 1])
    lost = change(ablation_sweep(two_hop.model, batch, grid, Zero(), reading))
    expected = torch.tensor([[-10.0, 0.0], [-10.0, 0.0]])
    torch.testing.assert_close(lost.mean("example").values, expected)
    grid = position_grid("attn_out", [0, 1], [0, 1, 2])
    lost = change(ablation_sweep(two_hop.model, batch, grid, Zero(), reading))
    expected = torch.tensor([[0.0, -10.0, 0.0], [0.0, 0.0, -10.0]])
    torch.testing.assert_close(lost.mean("example").values, expected)


def test_nothing_is_lost_where_there_is_no_circuit(uninformed: GroundTruth) -> None:
    batch, reading = pair_of(uninformed).clean, pair_of(uninformed).reading
    grid = head_grid("head_out", [0, 1], [0, 1])
    lost = change(ablation_sweep(uninformed.model, batch, grid, Zero(), reading))
    assert float(lost.values.abs().max()) == 0


def test_the_means_are_those_worked_out_by_hand() -> None:
    model, (clean, corrupt, _) = random_decoder(), random_pair()
    site = Site("mlp_out", 1)
    seen = torch.cat([activations(model, b, [site])[site] for b in (clean, corrupt)])
    both = [clean, corrupt]
    whole = Part("mlp_out", 1)
    mean = Mean(both).values(model, clean, [whole])[whole]
    torch.testing.assert_close(mean, seen.mean((0, 1)))
    at = Part("mlp_out", 1, positions=(1, 3))
    mean = Mean(both).values(model, clean, [at])[at]
    torch.testing.assert_close(mean, seen[:, [1, 3]].mean((0, 1)))
    mean = Mean(both, over="examples").values(model, clean, [at])[at]
    torch.testing.assert_close(
        mean[:, [1, 3]], seen[:, [1, 3]].mean(0).expand(4, 2, -1)
    )


def test_the_mean_over_tokens_leaves_padding_out(two_hop: GroundTruth) -> None:
    mask = torch.ones_like(two_hop.tokens, dtype=torch.bool)
    mask[0, 0] = False
    prompts = Batch(two_hop.tokens, two_hop.targets, mask)
    rule, target = (
        Mean([Batch(two_hop.tokens, two_hop.targets)]),
        Part("mlp_out"),
    )
    total, count = rule._add_tokens(target, prompts, mask[..., None].double())
    assert (float(total), count) == (17, 17)


def test_a_resampled_head_speaks_of_its_donor(two_hop: GroundTruth) -> None:
    batch = Batch(two_hop.tokens, two_hop.targets)
    rows = torch.randint(6, (6,), generator=torch.Generator().manual_seed(3))
    with ablate(two_hop.model, batch, [head(0, 0), head(1, 1)], Resample(batch, 3)):
        logits = two_hop.model(batch.tokens)
    assert torch.equal(logits[:, -1].argmax(-1), two_hop.targets[rows])


def test_sweeps_equal_one_at_a_time() -> None:
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    grid = head_grid("head_out", range(3), range(3), positions=(0, 4))
    for rule in rules(clean):
        edits = part_edits(model, corrupt, grid.items, rule)
        cells = [{part.site: edits[part]} for part in grid.items]
        alone = one_at_a_time(model, corrupt, cells, reading)
        swept = ablation_sweep(model, corrupt, grid, rule, reading)
        torch.testing.assert_close(swept.values.flatten(0, 1), alone)


def test_zero_of_all_heads_leaves_the_output_bias() -> None:
    model, (clean, _, _) = random_decoder(), random_pair()
    target = Part("head_out", 1)
    with (
        record(model, [Site("attn_out", 1)]) as seen,
        ablate(model, clean, [target], Zero()),
    ):
        model(clean.tokens)
    bias = model.blocks[1].attn.b_O
    assert bias is not None
    torch.testing.assert_close(
        seen[Site("attn_out", 1)], bias.detach().expand(4, 5, -1)
    )


def test_several_targets_at_one_site_are_all_ablated() -> None:
    model, (clean, _, _) = random_decoder(), random_pair()
    site = Site("head_out", 0)
    targets = [Part("head_out", 0, 0, 1), Part("head_out", 0, 2, 3)]
    with ablate(model, clean, targets, Zero()), record(model, [site]) as seen:
        model(clean.tokens)
    zero = (seen[site] == 0).all(-1).all(0)
    assert zero.nonzero().tolist() == [[1, 0], [3, 2]]


def test_an_ablation_of_nothing_raises() -> None:
    model, (clean, _, _) = random_decoder(), random_pair()
    model.blocks[0].attn.W_O.data[2] = 0
    with (
        pytest.raises(BadInput, match=r"head_out\[0\] left every activation unchanged"),
        ablate(model, clean, [head(0, 2)], Zero()),
    ):
        model(clean.tokens)


def test_hooks_are_gone_after_an_error(two_hop: GroundTruth) -> None:
    batch = Batch(two_hop.tokens, two_hop.targets)
    with (
        pytest.raises(RuntimeError, match="stop"),
        ablate(two_hop.model, batch, [head(0, 0)], Zero()),
    ):
        raise RuntimeError("stop")
    assert accuracy(two_hop, two_hop.model(batch.tokens)) == 1


def test_bad_rules_are_named(two_hop: GroundTruth) -> None:
    batch = Batch(two_hop.tokens, two_hop.targets)
    with pytest.raises(BadInput, match="at least one reference"):
        Mean([])
    with pytest.raises(BadInput, match='over="examples"'):
        Mean([batch]).values(two_hop.model, batch, [Part("pattern")])
    shorter = Batch(two_hop.tokens[:, :2], two_hop.targets)
    with pytest.raises(BadInput, match="a mean for each position needs prompts of one"):
        Mean([shorter], over="examples").values(
            two_hop.model, batch, [Part("attn_out")]
        )
    with pytest.raises(BadInput, match="cannot hold"):
        layer_grid("attn_out", [])
