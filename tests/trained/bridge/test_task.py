"""The facts of Section 3.1: token ids, maps, doses of identity, nothing leaked."""

import pytest
import torch

from trained.bridge.task import (
    UNLABELLED,
    Facts,
    World,
    assert_out_of_distribution,
    covered_bridges,
    cycle,
    identity_labels,
    make_world,
    one_hop_facts,
    shuffle,
)
from trained.errors import BadInput


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def world() -> World:
    """The worked example, N=3 and kappa=2."""
    return make_world(3, 2, "shift", generator=source())


def test_the_worked_example(world: World) -> None:
    assert world.d_vocab == 15
    assert world.second_relation == 14
    hop1, hop2 = world.hop1(), world.hop2()
    assert hop1.tokens[[0, 3]].tolist() == [[0, 12], [0, 13]]
    assert hop1.targets[[0, 3]].tolist() == [3, 6]
    assert hop2.tokens[[0, 3]].tolist() == [[3, 14], [6, 14]]
    assert hop2.targets[[0, 3]].tolist() == [9, 10]
    assert world.zero_hop().tokens[[0, 3]].tolist() == [[3], [6]]
    assert world.zero_hop().targets[[0, 3]].tolist() == [3, 6]
    query = world.two_hop()
    assert query.tokens[[0, 3]].tolist() == [[0, 12, 14], [0, 13, 14]]
    assert query.targets[[0, 3]].tolist() == [9, 10]
    assert world.omitted().tokens[[0, 3]].tolist() == [[0, 14], [0, 14]]


def test_roles_name_positions(world: World) -> None:
    query = world.two_hop()
    assert query.role("subject")[0].tolist() == [0]
    assert query.role("bridge")[0].tolist() == [1]
    # The bridge is known where the first hop ends, and at its own token.
    assert world.hop1().role("bridge").equal(world.hop1().role("last"))
    for batch in (world.zero_hop(), world.hop2()):
        assert batch.role("bridge")[0].tolist() == [0]
        with pytest.raises(BadInput, match="bridge"):
            batch.role("subject")


def test_two_hops_compose_the_single_ones() -> None:
    world = make_world(7, 3, "random", generator=source(1))
    first = {tuple(t): b for t, b in zip(*_listed(world.hop1()), strict=True)}
    second = {tuple(t): c for t, c in zip(*_listed(world.hop2()), strict=True)}
    for (a, r1, r2), answer in zip(*_listed(world.two_hop()), strict=True):
        assert second[first[a, r1], r2] == answer


def _listed(batch):
    return batch.tokens.tolist(), batch.targets.tolist()


def test_complexity_of_the_maps() -> None:
    assert make_world(9, 4, "shift", generator=source()).distinct_objects() == 4
    assert make_world(9, 4, "degenerate", generator=source()).distinct_objects() == 1
    random = make_world(9, 4, "random", generator=source())
    assert 1 < random.distinct_objects() <= 4
    for row in random.objects:
        assert sorted(row.tolist()) == list(range(9))


def test_a_map_that_would_repeat_objects_is_refused() -> None:
    with pytest.raises(BadInput, match="complexity 3"):
        make_world(3, 3, "shift", generator=source())


def test_training_facts_of_the_worked_example(world: World) -> None:
    facts = one_hop_facts(world, world.bridge)
    assert facts.tokens.shape == (12, 2)
    assert facts.targets[0].tolist() == [UNLABELLED, 3]
    assert facts.targets[6].tolist() == [3, 9]
    assert (facts.targets >= 0).sum() == 18
    bare = one_hop_facts(world, torch.full((6,), UNLABELLED))
    assert (bare.targets >= 0).sum() == 12


def test_two_hop_queries_share_no_prompt_with_training(world: World) -> None:
    facts = one_hop_facts(world, world.bridge)
    trained = {tuple(t) for t in facts.tokens.tolist()}
    trained |= {tuple(t[:1]) for t in facts.tokens.tolist()}
    for query in world.two_hop().tokens.tolist():
        assert tuple(query) not in trained
        assert (query[0], query[2]) not in trained


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([0, 14], "with r2"), ([9, 14], "object"), ([0, 12, 14], "two-hop")],
)
def test_a_leak_is_noticed(world: World, prompt: list[int], message: str) -> None:
    tokens = torch.tensor([prompt])
    leaky = Facts(tokens, torch.zeros_like(tokens), torch.zeros(1, dtype=torch.long))
    with pytest.raises(AssertionError, match=message):
        assert_out_of_distribution(world, leaky)


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.5, 5), (1.0, 10)])
def test_identity_on_a_share_of_bridges(share: float, count: int) -> None:
    world = make_world(10, 1, "shift", generator=source())
    covered = covered_bridges(world, share, generator=source(2))
    assert covered.sum() == count
    labels = identity_labels(world, covered)
    assert torch.equal(labels[covered], world.bridge[covered])
    assert (labels[~covered] == UNLABELLED).all()


@pytest.mark.parametrize("size", [2, 5, 30])
def test_a_cycle_visits_every_item(size: int) -> None:
    successor = cycle(size, generator=source(3))
    place, seen = 0, []
    for _ in range(size):
        place = int(successor[place])
        seen.append(place)
    assert sorted(seen) == list(range(size))
    assert place == 0


def test_shuffled_answers_stay_on_the_labelled_positions(world: World) -> None:
    facts = one_hop_facts(world, world.bridge)
    found = shuffle(facts, source())
    assert torch.equal(found.tokens, facts.tokens)
    assert torch.equal(found.targets == UNLABELLED, facts.targets == UNLABELLED)
    before, after = (x.targets.flatten().sort().values for x in (facts, found))
    assert torch.equal(before, after)
    # Not even the class of an answer follows from the relation.
    objects = found.targets[:, 1] >= world.first_object
    assert 0 < int(objects[:6].sum()) < 6
    assert torch.equal(shuffle(facts, source()).targets, found.targets)
