"""Patching finds the wired circuit, and equals one cell at a time."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from circuits.hooks import record
from circuits.interventions.edit import Transplant, part_edits
from circuits.interventions.metric import TokenMetric
from circuits.interventions.part import Grid, Part, head_grid, layer_grid, position_grid
from circuits.interventions.passes import answer_logits, resumed_logits
from circuits.interventions.patching import effect, patch_sweep
from circuits.interventions.sweep import (
    Reading,
    change,
    known,
    logit_difference,
    summary,
    target_log_prob,
)
from circuits.sites import Kind, Site
from tests.ground_truth import GroundTruth, OneQueryModel
from tests.intervention_pairs import (
    Pair,
    one_at_a_time,
    pair_of,
    random_decoder,
    random_pair,
)
from trained.errors import BadInput
from trained.task import Batch


def restored(truth: GroundTruth, grid: Grid[Part]) -> list[float]:
    pair = pair_of(truth)
    patched = patch_sweep(truth.model, pair.clean, pair.corrupt, grid, pair.reading)
    return effect(patched).mean("example").values.flatten().tolist()


def test_the_answer_moves_along_the_wired_path(two_hop: GroundTruth) -> None:
    """It is at the subject, then at r1, then at r2."""
    pre = restored(two_hop, position_grid("resid_pre", [0, 1], [0, 1, 2]))
    assert pre == pytest.approx([1, 0, 0, 0, 1, 0], abs=1e-5)
    post = restored(two_hop, position_grid("resid_post", [1], [0, 1, 2]))
    assert post == pytest.approx([0, 0, 1], abs=1e-5)


def test_only_the_wired_heads_restore_the_answer(two_hop: GroundTruth) -> None:
    heads = restored(two_hop, head_grid("head_out", [0, 1], [0, 1]))
    assert heads == pytest.approx([1, 0, 1, 0], abs=1e-5)
    assert restored(two_hop, layer_grid("attn_out", [0, 1])) == pytest.approx([1, 1])


def test_patterns_that_do_not_depend_on_the_prompt_are_marked(
    two_hop: GroundTruth,
) -> None:
    pair = pair_of(two_hop)
    grid = head_grid("pattern", [0, 1], [0, 1])
    with pytest.raises(BadInput, match="no intervention of the sweep changed"):
        patch_sweep(two_hop.model, pair.clean, pair.corrupt, grid, pair.reading)


def test_places_that_prompts_share_are_marked_inert(two_hop: GroundTruth) -> None:
    pair = pair_of(two_hop)
    grid = position_grid("resid_pre", [0], [0, 1, 2])
    patched = patch_sweep(two_hop.model, pair.clean, pair.corrupt, grid, pair.reading)
    assert patched.provenance["inert"] == [
        {"layer": 0, "position": 1},
        {"layer": 0, "position": 2},
    ]


def test_nothing_is_restored_where_there_is_no_circuit(uninformed: GroundTruth) -> None:
    pair = pair_of(uninformed)
    grid = position_grid("resid_post", [0, 1], [0, 1, 2])
    patched = patch_sweep(
        uninformed.model, pair.clean, pair.corrupt, grid, pair.reading
    )
    assert change(patched).values.abs().max() == 0
    grid = position_grid("resid_pre", [0, 1], [0])
    same = Batch(pair.corrupt.tokens, pair.clean.targets)
    flat = Reading(lambda logits, _: logits.logsumexp(-1))
    patched = patch_sweep(uninformed.model, pair.clean, same, grid, flat)
    with pytest.raises(BadInput, match="there is nothing to restore"):
        effect(patched)


@pytest.mark.parametrize("kind", ["resid_pre", "resid_mid", "mlp_out"])
def test_batched_cells_equal_one_at_a_time(kind: Kind) -> None:
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    check_equal(model, clean, corrupt, reading, position_grid(kind, range(3), range(5)))


@pytest.mark.parametrize("kind", ["head_out", "pattern", "value"])
def test_batched_heads_equal_one_at_a_time(kind: Kind) -> None:
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    grid = head_grid(kind, range(3), range(3), positions=(1, 4))
    check_equal(model, clean, corrupt, reading, grid)


def check_equal(
    model: torch.nn.Module,
    clean: Batch,
    corrupt: Batch,
    reading: Reading,
    grid: Grid[Part],
) -> None:
    patched = patch_sweep(model, clean, corrupt, grid, reading)
    edits = part_edits(model, corrupt, grid.items, Transplant(clean))
    cells = [{part.site: edits[part]} for part in grid.items]
    alone = one_at_a_time(model, corrupt, cells, reading)
    torch.testing.assert_close(
        patched.values.flatten(0, -2), alone, rtol=1e-12, atol=1e-12
    )
    assert float(change(patched).values.abs().max()) > 1e-3


def test_an_identity_patch_has_no_effect() -> None:
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    grid = layer_grid("resid_post", range(3))
    with pytest.raises(BadInput, match="no intervention of the sweep changed"):
        patch_sweep(model, corrupt, corrupt, grid, reading)
    # Beside a cell that acts, the cells that do not are exactly zero.
    grid = position_grid("resid_pre", [0, 1], [0, 1])
    patched = patch_sweep(model, clean, corrupt, grid, reading)
    assert float(effect(patched).select(position=0).values.abs().max()) < 1e-12


def test_patching_everything_restores_everything() -> None:
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    grid = layer_grid("resid_pre", range(3))
    patched = patch_sweep(model, clean, corrupt, grid, reading)
    torch.testing.assert_close(patched.values, known(patched, "clean").expand(3, -1))
    means = effect(patched).mean("example").values
    torch.testing.assert_close(means, torch.ones(3).to(means))


def test_a_role_is_patched_wherever_it_is(two_hop: GroundTruth) -> None:
    """The subject of the clean prompts stands at another column."""
    pair = pair_of(two_hop)
    n = len(pair.clean.targets)
    zeros, ones = torch.zeros(n, 1, dtype=torch.long), torch.ones(n, 1).long()
    corrupt = replace(pair.corrupt, roles={"subject": zeros})
    tokens = pair.clean.tokens[:, [1, 0, 2]]
    clean = Batch(tokens, pair.clean.targets, roles={"subject": ones})
    grid = Grid({"what": ("token",)}, (Part("resid_pre", 0, None, "subject"),))
    values = Transplant(clean).values(two_hop.model, corrupt, grid.items)
    own = values[grid.items[0]][:, 0, two_hop.subspaces["token"]].argmax(-1)
    assert torch.equal(own, pair.clean.tokens[:, 0])
    with pytest.raises(BadInput, match="unknown role 'object'"):
        Part("resid_pre", 0, None, "object").mask(corrupt, torch.zeros(n, 3, 2))


def test_the_summary_holds_the_mean_and_its_interval() -> None:
    model, (clean, corrupt, _) = random_decoder(), random_pair()
    reading = Reading(target_log_prob, at=3)
    grid = position_grid("resid_mid", [0, 2], [1, "last"])
    shares = effect(patch_sweep(model, clean, corrupt, grid, reading))
    table = summary(shares)
    assert table.axes == ("statistic", "layer", "position")
    assert table.labels["position"] == (1, "last")
    mean, low, high = table.values
    torch.testing.assert_close(mean, shares.mean("example").values)
    assert bool((low <= mean).all())
    assert bool((mean <= high).all())


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_pass_from_a_stored_residual_equals_a_whole_one(layer: int) -> None:
    """It is the residual that counts, not the tokens."""
    model, (clean, corrupt, _) = random_decoder(), random_pair()
    with record(model, [Site("resid_pre", layer)]) as seen:
        whole = answer_logits(model, clean, 2)
    residual: Tensor = seen[Site("resid_pre", layer)]
    assert torch.equal(resumed_logits(model, corrupt, residual, layer, 2), whole)


def test_bad_places_are_named() -> None:
    model, pair = random_decoder(), random_pair()

    def patch(pair: Pair, target: Part) -> None:
        grid = Grid({"what": (0,)}, (target,))
        patch_sweep(model, pair.clean, pair.corrupt, grid, pair.reading)

    with pytest.raises(BadInput, match=r"unknown position '\[9\]'; .* 0 to 4"):
        patch(pair, Part("resid_pre", positions=9))
    with pytest.raises(BadInput, match=r"unknown head '\[7\]'; .* 0 to 2"):
        patch(pair, Part("head_out", head=7))
    with pytest.raises(BadInput, match="unknown site with heads"):
        Part("mlp_out", head=0)
    shorter = pair._replace(clean=Batch(pair.clean.tokens[:, :3], pair.clean.targets))
    with pytest.raises(BadInput, match="prompts of 3 and of 5 tokens: name a role"):
        patch(shorter, Part("resid_pre", positions=1))


def test_columns_of_prompts_padded_differently_are_not_exchanged() -> None:
    """Column 1 of a prompt of four tokens is not column 1 of one of five."""
    _, (clean, corrupt, _) = random_decoder(), random_pair()
    mask = torch.ones(4, 5, dtype=torch.bool)
    whole = Batch(corrupt.tokens, corrupt.targets, mask)
    padded = Batch(clean.tokens, clean.targets, mask.clone())
    padded.mask[2, 0] = False
    target = Part("resid_pre", positions=1)
    with pytest.raises(BadInput, match="padded at different positions: name a role"):
        Transplant(padded)._aligned(target, whole, torch.zeros(4, 5, 12))


def test_patterns_whose_roles_are_elsewhere_are_not_exchanged() -> None:
    _, (clean, corrupt, _) = random_decoder(), random_pair()
    here = replace(corrupt, roles={"it": torch.full((4, 1), 1)})
    there = replace(clean, roles={"it": torch.full((4, 1), 2)})
    target = Part("pattern", 0, (0,), "it")
    with pytest.raises(BadInput, match="'it' is at other positions"):
        Transplant(there)._aligned(target, here, torch.zeros(4, 3, 5, 5))


@pytest.mark.parametrize(
    "wrong", [torch.tensor(3), torch.tensor([3]), torch.ones(4, 1)]
)
def test_a_metric_is_one_number_for_each_example(wrong: Tensor) -> None:
    model, (clean, corrupt, _) = random_decoder(), random_pair()
    grid = position_grid("resid_pre", [1], [1])
    reading = Reading(logit_difference(wrong.long()))
    with pytest.raises(
        BadInput, match=r"wrong answers of .* for targets of shape \(4,"
    ):
        patch_sweep(model, clean, corrupt, grid, reading)
    for metric in (lambda logits, _: logits, lambda logits, _: logits.mean()):
        with pytest.raises(BadInput, match="for 4 examples: it must be one number"):
            patch_sweep(model, clean, corrupt, grid, Reading(metric))


def test_a_model_that_cannot_resume_says_so() -> None:
    batch = Batch(torch.zeros(2, 3).long(), torch.zeros(2).long())
    with pytest.raises(BadInput, match="OneQueryModel cannot start inside it"):
        resumed_logits(OneQueryModel(), batch, torch.zeros(2, 3, 8), 0)


def test_pairs_are_patched_a_few_at_a_time() -> None:
    """A pair of equal prompts is inert; the sweep is not."""
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    tokens = corrupt.tokens.clone()
    tokens[2] = clean.tokens[2]
    corrupt = replace(corrupt, tokens=tokens)
    grid = position_grid("resid_mid", range(3), range(5))
    together = patch_sweep(model, clean, corrupt, grid, reading)
    for tokens_at_once in (1, 10, 15):
        few = replace(reading, tokens_at_once=tokens_at_once)
        apart = patch_sweep(model, clean, corrupt, grid, few)
        torch.testing.assert_close(apart.values, together.values)
        for what in ("unedited", "clean"):
            torch.testing.assert_close(known(apart, what), known(together, what))
        assert apart.provenance["inert"] == together.provenance["inert"]
        assert together.provenance["inert"]
    with pytest.raises(BadInput, match="no intervention of the sweep changed"):
        patch_sweep(model, clean, clean, grid, few)


def test_units_of_each_example_are_patched_together() -> None:
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    units = torch.tensor([[0], [1], [2], [3]])
    grid = Grid({"what": (0,)}, (Part("mlp_act", 1, units=units),))
    together = patch_sweep(model, clean, corrupt, grid, reading)
    few = replace(reading, tokens_at_once=5)
    apart = patch_sweep(model, clean, corrupt, grid, few)
    torch.testing.assert_close(apart.values, together.values)


@pytest.mark.parametrize("tokens_at_once", [5, 1000])
def test_the_metric_is_refused_before_examples_are_parted(tokens_at_once: int) -> None:
    model, (clean, corrupt, _) = random_decoder(), random_pair()
    reading = Reading(logit_difference(torch.tensor(3)), tokens_at_once=tokens_at_once)
    grid = position_grid("resid_pre", [1], [1])
    with pytest.raises(BadInput, match=r"wrong answers of shape \(\) for targets"):
        patch_sweep(model, clean, corrupt, grid, reading)


def test_metrics_of_two_columns_need_no_vocabulary() -> None:
    _, (clean, _, reading) = random_decoder(), random_pair()
    logits = torch.randn(4, 13, generator=torch.Generator().manual_seed(0))
    metric = reading.metric
    assert isinstance(metric, TokenMetric)
    assert not isinstance(target_log_prob, TokenMetric)
    own = logits.gather(1, metric.tokens(clean))
    assert torch.equal(metric.of_tokens(own, clean), metric(logits, clean))
    some = slice(1, 3)
    found = metric.rows(some)(logits[some], clean.rows(some))
    assert torch.equal(found, metric(logits, clean)[some])
