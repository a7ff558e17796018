"""Each rule breaks or moves the wired circuit as predicted, and nothing else."""

import pytest
import torch
from torch import Tensor

from circuits.hooks import intervene
from circuits.interventions.ablation import ablate, ablation_sweep
from circuits.interventions.edit import (
    Add,
    Permute,
    Put,
    Remove,
    Rule,
    Sharpen,
    TransplantWithin,
    Zero,
    orthonormal,
    part_edits,
)
from circuits.interventions.part import Grid, Part, head_grid, position_grid
from circuits.interventions.passes import activations
from circuits.interventions.sweep import change
from tests.ground_truth import LOGIT, GroundTruth, accuracy
from tests.intervention_pairs import (
    one_at_a_time,
    pair_of,
    random_decoder,
    random_pair,
)
from trained.decoder import Decoder
from trained.errors import BadInput
from trained.task import Batch

BRIDGE = Part("resid_post", 0, positions=1)
"""Where the two-hop model keeps its bridge, between its blocks."""


def prompts(truth: GroundTruth) -> Batch:
    return Batch(truth.tokens, truth.targets)


def right(truth: GroundTruth, part: Part, rule: Rule) -> float:
    """Accuracy with a rule in force."""
    with ablate(truth.model, prompts(truth), [part], rule):
        return accuracy(truth, truth.model(truth.tokens))


def said(truth: GroundTruth, part: Part, rule: Rule) -> Tensor:
    """The answers with a rule in force."""
    with ablate(truth.model, prompts(truth), [part], rule):
        return truth.model(truth.tokens)[:, -1].argmax(-1)


def subspace(truth: GroundTruth, name: str) -> Tensor:
    """The rows of the identity that span a wired subspace."""
    return torch.eye(truth.model.config.d_model)[truth.subspaces[name]]


def bridge_alone(truth: GroundTruth) -> Part:
    """The bridge without the other subspaces of its residual."""
    bridge = truth.subspaces["bridge"]
    columns = tuple(range(bridge.start, bridge.stop))
    return Part("resid_post", 0, positions=1, units=columns)


def applied(rule: Rule, part: Part, activation: Tensor) -> Tensor:
    """What a rule makes of an activation, without a model."""
    batch = Batch(
        torch.zeros(activation.shape[:2]).long(), torch.zeros(len(activation)).long()
    )
    return part_edits(random_decoder(), batch, [part], rule)[part](activation)


# --- the circuit breaks or moves


def test_removing_the_bridge_breaks_the_answer(two_hop: GroundTruth) -> None:
    assert right(two_hop, BRIDGE, Remove(subspace(two_hop, "bridge"))) <= 0.5
    idle = Part("resid_post", 0)
    assert right(two_hop, idle, Remove(subspace(two_hop, "scratch"))) == 1


def test_a_bridge_put_or_added_moves_the_answer(two_hop: GroundTruth) -> None:
    """Its bridge b_2 leads to c_4, whatever the subject."""
    vector = subspace(two_hop, "bridge")[2]
    wanted = torch.full((6,), 2 * 6 + 4)
    assert torch.equal(said(two_hop, bridge_alone(two_hop), Put(vector)), wanted)
    assert torch.equal(said(two_hop, BRIDGE, Add(3 * vector)), wanted)
    # At the subject it comes too late, in a subspace that nobody reads it is nothing.
    late = Part("resid_post", 0, positions=0)
    assert right(two_hop, late, Add(3 * vector)) == 1
    assert right(two_hop, BRIDGE, Add(3 * subspace(two_hop, "scratch")[2])) == 1


def test_each_example_takes_its_own_value(two_hop: GroundTruth) -> None:
    """Every example gets the bridge of the one after it."""
    own = subspace(two_hop, "bridge").roll(-2, 0)[:, None]
    assert torch.equal(
        said(two_hop, bridge_alone(two_hop), Put(own)), two_hop.targets.roll(-1)
    )


def test_the_donors_answer_lies_in_the_bridge_alone(two_hop: GroundTruth) -> None:
    donors = pair_of(two_hop).corrupt
    within = TransplantWithin(donors, subspace(two_hop, "bridge"))
    assert torch.equal(said(two_hop, BRIDGE, within), donors.targets)
    beside = Part("resid_post", 0)
    token = TransplantWithin(donors, subspace(two_hop, "token"))
    # Head 1 of block 1 reads tokens, but writes where nobody reads.
    assert right(two_hop, beside, token) == 1


def test_units_are_columns_of_a_subspace(two_hop: GroundTruth) -> None:
    """Zero of the bridge's columns is its removal; of each example's own, as well."""
    first = two_hop.subspaces["bridge"].start
    assert right(two_hop, bridge_alone(two_hop), Zero()) <= 0.5
    own = first + (torch.arange(6)[:, None] + 1) % 6
    assert right(two_hop, Part("resid_post", 0, units=own), Zero()) <= 0.5
    other = Part("resid_post", 0, units=own.roll(1, 0))
    with pytest.raises(BadInput, match=r"resid_post\[0\] left every activation"):
        right(two_hop, other, Zero())


def test_an_attention_pattern_is_put_by_hand(copy_head: GroundTruth) -> None:
    """Head 0 then copies the token at position 2."""
    part = Part("pattern", 0, 0, positions=3)
    assert right(copy_head, part, Put(torch.tensor([0.0, 0, 1, 0]))) == 0
    answers = said(copy_head, part, Put(torch.tensor([0.0, 0, 1, 0])))
    assert torch.equal(answers, copy_head.tokens[:, 2])
    idle = Part("pattern", 0, 1, positions=3)
    assert right(copy_head, idle, Put(torch.tensor([0.0, 0, 1, 0]))) == 1


def test_exchanged_keys_move_the_copy(copy_head: GroundTruth) -> None:
    """Head 0 finds what key 1 had at key 2."""
    part = Part("pattern", 0, 0, positions=3)
    answers = said(copy_head, part, Permute((0, 2, 1, 3)))
    assert torch.equal(answers, copy_head.tokens[:, 2])
    own = torch.tensor([[0, 2, 1, 3], [1, 0, 2, 3]]).repeat(16, 1)
    answers = said(copy_head, part, Permute(own))
    found = copy_head.tokens.gather(1, torch.tensor([2, 0]).repeat(16)[:, None])[:, 0]
    assert torch.equal(answers, found)


def test_flat_attention_loses_the_copy(copy_head: GroundTruth) -> None:
    """Power 0 shares the attention out; the copied token has a quarter left."""
    part = Part("pattern", 0, 0, positions=3)
    batch = prompts(copy_head)
    with ablate(copy_head.model, batch, [part], Sharpen(0)):
        logits = copy_head.model(batch.tokens)
    own = logits[:, -1].gather(1, batch.tokens)
    torch.testing.assert_close(own, torch.full_like(own, LOGIT / 4))


def test_a_sharpened_pattern_finds_its_key_again(copy_head: GroundTruth) -> None:
    """Scores a hundredth as large hardly tell the keys apart; power 100 mends that."""
    attention = copy_head.model.blocks[0].attn
    whole = attention.W_Q.data.clone()
    attention.W_Q.data *= 0.01
    batch, part = prompts(copy_head), Part("pattern", 0, 0)
    flat = copy_head.model(batch.tokens)[:, -1].gather(1, batch.targets[:, None])
    with ablate(copy_head.model, batch, [part], Sharpen(100.0)):
        sharp = copy_head.model(batch.tokens)[:, -1].gather(1, batch.targets[:, None])
    attention.W_Q.data = whole
    assert float(flat.detach().max()) < 0.4 * LOGIT
    torch.testing.assert_close(sharp, torch.full_like(sharp, LOGIT))


# --- nothing happens where there is no circuit


@pytest.mark.parametrize("name", ["Remove", "Add", "TransplantWithin", "Permute"])
def test_no_rule_finds_a_circuit_where_there_is_none(
    uninformed: GroundTruth, name: str
) -> None:
    pair, basis = pair_of(uninformed), subspace(uninformed, "scratch")
    rules: dict[str, Rule] = {
        "Remove": Remove(basis),
        "Add": Add(basis[0]),
        "TransplantWithin": TransplantWithin(
            pair.corrupt, subspace(uninformed, "token")[:6]
        ),
        "Permute": Permute(
            torch.cat([torch.arange(6).roll(1), torch.arange(6, 41)]), axis=-1
        ),
    }
    grid = position_grid("resid_post", [0], [0, 1])
    lost = change(
        ablation_sweep(uninformed.model, pair.clean, grid, rules[name], pair.reading)
    )
    assert float(lost.values.abs().max()) == 0


# --- worked out by hand


def test_values_worked_out_by_hand() -> None:
    part, states = Part("resid_pre"), torch.tensor([[[3.0, 4.0]]])
    diagonal = torch.tensor([[1.0, 1.0]])
    expected = {
        Remove(diagonal): [-0.5, 0.5],
        Put(torch.tensor([7.0, 8.0])): [7.0, 8.0],
        Add(torch.tensor([1.0, -1.0])): [4.0, 3.0],
        Permute((1, 0)): [4.0, 3.0],
    }
    for rule, values in expected.items():
        assert applied(rule, part, states).tolist() == [[pytest.approx(values)]]
    row = torch.tensor([[[[0.5, 0.25, 0.25, 0.0]]]])
    sharper = applied(Sharpen(2), Part("pattern"), row)
    assert sharper.flatten().tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6, 0])


def test_a_transplant_within_by_hand() -> None:
    """Along the diagonal from the donor, across it as it was."""
    model, (clean, corrupt, _) = random_decoder(), random_pair()
    part, basis = Part("resid_pre", 1), torch.zeros(2, 12, dtype=torch.double)
    basis[0, 0] = basis[1, 5] = 1
    rule = TransplantWithin(clean, torch.stack([basis.sum(0), basis[0]]))
    edit = part_edits(model, corrupt, [part], rule)[part]
    own, other = (
        activations(model, b, [part.site])[part.site] for b in (corrupt, clean)
    )
    expected = own.clone()
    expected[..., [0, 5]] = other[..., [0, 5]]
    torch.testing.assert_close(edit(own), expected)


def test_a_basis_of_any_rows_spans_what_it_spans() -> None:
    rows = torch.tensor([[1.0, 0, 0], [2.0, 0, 0], [1.0, 1.0, 0]])
    found = orthonormal(rows)
    expected = torch.diag(torch.tensor([1.0, 1, 0])).double()
    torch.testing.assert_close(found.mT @ found, expected)


# --- laws


def test_laws() -> None:
    source = torch.Generator().manual_seed(5)
    states = torch.randn(4, 5, 12, generator=source, dtype=torch.double)
    pattern = states.softmax(-1)[:, None, :, :5].softmax(-1)
    part, rows = Part("resid_pre"), Part("pattern")
    remove = Remove(torch.randn(3, 12, generator=source))
    once = applied(remove, part, states)
    torch.testing.assert_close(applied(remove, part, once), once)
    own = Remove(torch.randn(4, 3, 12, generator=source))
    once = applied(own, part, states)
    inside = torch.einsum("bkd,bpd->bpk", own.basis.double(), once)
    assert float(inside.abs().max()) < 1e-5
    vector = torch.randn(12, generator=source)
    there = applied(Add(vector), part, states)
    torch.testing.assert_close(applied(Add(-vector), part, there), states)
    order = torch.rand(4, 5, generator=source).argsort(-1)
    there = applied(Permute(order), rows, pattern)
    torch.testing.assert_close(
        applied(Permute(order.argsort(-1)), rows, there), pattern
    )
    torch.testing.assert_close(applied(Sharpen(1), rows, pattern), pattern)
    twice = applied(Sharpen(2), rows, applied(Sharpen(1.5), rows, pattern))
    torch.testing.assert_close(applied(Sharpen(3), rows, pattern), twice)
    torch.testing.assert_close(twice.sum(-1), torch.ones_like(twice.sum(-1)))


def test_rows_of_padding_stay_empty() -> None:
    rows = torch.tensor([[[[0.0, 0.0], [0.25, 0.75]]]])
    assert applied(Sharpen(2), Part("pattern"), rows)[0, 0, 0].tolist() == [0, 0]


def identities(model: Decoder, batch: Batch) -> list[tuple[Part, Rule]]:
    part = Part("resid_pre", 1)
    own = activations(model, batch, [part.site])[part.site]
    return [
        (part, Put(own)),
        (part, Add(torch.zeros(12))),
        (part, Remove(torch.zeros(2, 12))),
        (part, TransplantWithin(batch, torch.eye(12))),
        (Part("pattern", 1), Sharpen(1)),
        (Part("pattern", 1), Permute(range(5))),
    ]


@pytest.mark.parametrize("number", range(6))
def test_a_rule_that_changes_nothing_raises(number: int) -> None:
    model, (clean, _, _) = random_decoder(), random_pair()
    part, rule = identities(model, clean)[number]
    with (
        pytest.raises(BadInput, match="left every activation unchanged"),
        ablate(model, clean, [part], rule),
    ):
        model(clean.tokens)


# --- sweeps


@pytest.mark.parametrize("number", range(7))
def test_sweeps_equal_one_at_a_time(number: int) -> None:
    """Each repetition of the prompts has the values of its own examples."""
    model, (clean, corrupt, reading) = random_decoder(), random_pair()
    source = torch.Generator().manual_seed(2)
    heads = head_grid("head_out", range(3), range(3), positions=(0, 4))
    patterns = head_grid("pattern", range(3), range(3))
    units = torch.rand(4, 12, generator=source).argsort(-1)[:, :3]
    own = tuple(Part("mlp_out", layer, units=units) for layer in range(3))
    cases: list[tuple[Grid[Part], Rule]] = [
        (heads, Put(torch.randn(4, 1, 1, 12, generator=source))),
        (heads, Add(torch.randn(4, 5, 1, 12, generator=source))),
        (heads, Remove(torch.randn(4, 2, 12, generator=source))),
        (heads, TransplantWithin(clean, torch.randn(4, 2, 12, generator=source))),
        (patterns, Sharpen(3)),
        (patterns, Permute(torch.rand(4, 5, generator=source).argsort(-1))),
        (Grid({"layer": (0, 1, 2)}, own), Zero()),
    ]
    grid, rule = cases[number]
    edits = part_edits(model, corrupt, grid.items, rule)
    cells = [{part.site: edits[part]} for part in grid.items]
    alone = one_at_a_time(model, corrupt, cells, reading)
    swept = ablation_sweep(model, corrupt, grid, rule, reading)
    torch.testing.assert_close(swept.values.flatten(0, -2), alone)
    assert float(change(swept).values.abs().max()) > 1e-3


# --- shapes that would broadcast by accident, and other bad input


@pytest.mark.parametrize(
    ("part", "rule", "message"),
    [
        (Part("resid_pre"), Put(torch.zeros(4, 12)), r"\(4, 12\) for resid_pre\[0\]"),
        (Part("pattern"), Put(torch.zeros(3)), r"\(3,\) for pattern\[0\] of shape"),
        (Part("pattern"), Add(torch.zeros(5, 5)), "give all axes, 1 where it is"),
        (Part("resid_pre"), Remove(torch.zeros(2, 9)), r"basis of shape \(2, 9\)"),
        (Part("resid_pre"), Remove(torch.zeros(3, 2, 12)), r"basis of shape \(3, 2"),
        (Part("resid_pre"), Remove(torch.zeros(12)), r"rows are \[k, d\]"),
        (Part("resid_pre"), Sharpen(2), "only whole rows of a pattern"),
        (Part("pattern", units=(1,)), Sharpen(2), "only whole rows of a pattern"),
        (Part("pattern"), Permute((0, 1, 2)), r"order of shape \(3,\) for axis -1"),
        (Part("pattern"), Permute((0, 1, 2, 3, 3)), "every index once"),
        (Part("pattern"), Permute(torch.zeros(3, 5).long()), r"shape \(3, 5\)"),
        (Part("pattern"), Permute((0,), axis=4), "unknown axis of pattern"),
        (Part("mlp_act", units=(99,)), Zero(), r"unknown unit '\[99\]'; .* 0 to 47"),
        (Part("mlp_act", units=torch.zeros(3, 1).long()), Zero(), "units of 3 example"),
        (Part("mlp_act", units=torch.full((4, 1), 48)), Zero(), r"unit '\[48\]'"),
    ],
)
def test_what_does_not_fit_is_named(part: Part, rule: Rule, message: str) -> None:
    model, (clean, _, _) = random_decoder(), random_pair()
    with (
        pytest.raises(BadInput, match=message),
        intervene(model, {part.site: part_edits(model, clean, [part], rule)[part]}),
    ):
        model(clean.tokens)


def test_bad_values_are_named_at_once() -> None:
    with pytest.raises(BadInput, match="must not be negative"):
        Sharpen(-1)
    with pytest.raises(BadInput, match=r"the axes \[batch, unit\]"):
        Part("mlp_act", units=torch.zeros(4).long())
    model, (clean, corrupt, _) = random_decoder(), random_pair()
    fewer = clean.rows(slice(0, 3))
    with pytest.raises(BadInput, match="3 donors for 4 examples"):
        part_edits(
            model, corrupt, [Part("attn_out")], TransplantWithin(fewer, torch.eye(12))
        )
