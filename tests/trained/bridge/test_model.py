"""Emb-MLP is a sum of rows of Z, its hooks reach it; what is recorded of a GPT."""

import pytest
import torch

from circuits.hooks import intervene, record
from circuits.sites import Site
from trained.bridge.model import EmbMLP, answers, course, fact_loss, net_cosine, reread
from trained.bridge.program import two_hop_margins
from trained.bridge.task import World, make_world, one_hop_facts
from trained.decoder import Decoder, DecoderConfig


def small(factors: str = "two") -> tuple[World, EmbMLP]:
    source = torch.Generator().manual_seed(0)
    world = make_world(5, 2, "shift", generator=source)
    return world, EmbMLP(world, d_model=16, factors=factors, generator=source)


def test_logits_are_sums_of_rows() -> None:
    world, model = small()
    query = world.two_hop()
    logits = model(query.tokens)
    matrix = model.logit_matrix
    n, n_out = world.n_subjects, world.n_bridges + world.n_subjects
    # Query 0 is (a_0, r1_0, r2): rows 0, 15 and 17 of Z.
    expected = matrix[0] + matrix[15] + matrix[17]
    torch.testing.assert_close(logits[0, -1, n : n + n_out], expected)
    assert torch.isinf(logits[..., :n]).all()
    assert torch.isinf(logits[..., n + n_out :]).all()


def test_a_later_token_does_not_change_earlier_logits() -> None:
    world, model = small()
    alone, within = model(world.zero_hop().tokens), model(world.hop2().tokens)
    torch.testing.assert_close(alone[:, 0], within[:, 0])


def test_margins_agree_with_the_program() -> None:
    world, model = small()
    data = {"two_hop": world.two_hop(), "hop2": world.hop2()}
    right = two_hop_margins(model.logit_matrix, world.n_subjects, 2) > 0
    found = answers(model, data, objects=world.object_tokens)
    assert found["ood"] == right.float().mean()
    assert found["ood"] <= found["ood_obj"]


def test_the_unfactorised_model_starts_at_chance() -> None:
    world, model = small("one")
    assert not model.logit_matrix.any()
    facts = one_hop_facts(world, world.bridge)
    n_out = world.n_bridges + world.n_subjects
    torch.testing.assert_close(fact_loss(model, facts), torch.tensor(n_out).log())
    assert [name for name, _ in model.named_parameters()] == ["W_E"]


def test_sites_reach_the_model() -> None:
    world, model = small()
    tokens = world.two_hop().tokens
    before, after = Site("resid_pre", 0), Site("resid_post", 0)
    with record(model, [before, after, Site("logits")]) as seen:
        clean = model(tokens)
    torch.testing.assert_close(seen[after][:, -1], seen[before].sum(1))
    torch.testing.assert_close(seen[Site("logits")], clean)
    with intervene(model, {before: lambda x: x}):
        torch.testing.assert_close(model(tokens), clean)
    with intervene(model, {before: torch.zeros_like}):
        edited = model(tokens)[:, -1, world.object_tokens]
    assert not edited.any()


def test_unlabelled_positions_carry_no_loss() -> None:
    world, model = small()
    facts = one_hop_facts(world, torch.full((10,), -1))
    grown = facts._replace(tokens=facts.tokens.clone())
    by_hand = []
    for batch in (world.hop1(), world.hop2()):
        chances = model(batch.tokens)[:, -1].log_softmax(-1)
        by_hand.append(-chances.gather(1, batch.targets[:, None]))
    torch.testing.assert_close(fact_loss(model, grown), torch.cat(by_hand).mean())


@pytest.mark.parametrize("factors", ["two", "one"])
def test_only_the_read_out_learns_on(factors: str) -> None:
    world, model = small(factors)
    with torch.no_grad():
        model.W_E.copy_(torch.randn_like(model.W_E))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    facts = one_hop_facts(world, world.bridge)
    other = reread(model, facts, steps=5, lr=0.1)
    assert fact_loss(other, facts) < fact_loss(model, facts)
    assert torch.equal(other.W_E, model.W_E)
    assert not other.W_U.requires_grad
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)


def test_net_cosine_by_hand() -> None:
    own = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    assert net_cosine(own, own).item() == 1
    assert net_cosine(own, own.flip(0)).item() == -1
    # A direction that all share says nothing of pairs.
    assert net_cosine(torch.ones(2, 2), torch.ones(2, 2)).item() == 0


def test_the_course_leaves_the_last_block_out() -> None:
    world, _ = small()
    sizes = DecoderConfig(
        d_vocab=world.d_vocab, d_model=8, n_layers=3, n_heads=2, n_ctx=6
    )
    model = Decoder(sizes, generator=torch.Generator().manual_seed(0))
    batches = ("hop1", "hop2", "zero_hop", "two_hop")
    data = {name: getattr(world, name)() for name in batches}
    found = course(model, data, objects=world.object_tokens)
    own, wrong = [], []
    for stop in (1, 2):
        subjects, bridges = (
            model.through(model.embed(data[name].tokens), stop=stop)[:, -1]
            for name in ("hop1", "zero_hop")
        )
        own.append(net_cosine(subjects, bridges))
        wrong.append(net_cosine(subjects, bridges.roll(1, 0)))
    torch.testing.assert_close(found["alignment"], sum(own) / 2)
    torch.testing.assert_close(found["mispaired"], sum(wrong) / 2)
