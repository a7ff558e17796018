import pytest
import torch

from trained.analogy.arms import labelled
from trained.analogy.task import (
    analogy_world,
    curriculum,
    gpt_reading,
    hits,
    hits_among,
    scores,
    shuffle,
    two_hop_world,
)
from trained.decoder import Decoder, DecoderConfig
from trained.errors import BadInput

NAMES = (
    "joint",
    "SA",
    "AS_T",
    "AS_E",
    "permuted",
    "omitted",
    "bridge",
    "no_bridge",
    "permuted_bridge",
    "half_bridge",
    "decoy",
)


def test_worked_example_of_the_docstring():
    world = analogy_world(2)
    assert world.size == 10
    facts = world.premises("S_tgt")
    assert facts.tokens.tolist() == [[2, 8], [3, 8]]
    assert facts.targets.tolist() == [4, 5]
    asked = world.conclusions()
    assert asked.test.tokens.tolist() == [[2, 9], [3, 9]]
    assert asked.known.tokens.tolist() == [[0, 9], [1, 9]]
    assert asked.test.targets.tolist() == asked.known.targets.tolist() == [6, 7]
    assert asked.shared.tolist() == [4, 5]
    assert asked.test.role("entity").tolist() == [[0], [0]]


def test_two_hop_takes_the_bridge_as_source():
    world = two_hop_world(2)
    assert world.size == 9
    facts = world.premises("ID")
    assert facts.tokens.tolist() == [[2, 8], [3, 8]]
    assert facts.targets.tolist() == [2, 3]
    asked = world.conclusions()
    assert asked.known.tokens[:, 0].tolist() == [2, 3]
    assert asked.test.tokens.tolist() == [[0, 7], [1, 7]]


def test_shifted_and_halved_sets():
    world = two_hop_world(4)
    assert world.premises("ID+1").targets.tolist() == [5, 6, 7, 4]
    assert world.premises("ID/2").targets.tolist() == [4, 5]
    with pytest.raises(BadInput, match="unknown premise set 'X'"):
        world.premises("X")


def test_decoys_answer_with_fresh_tokens_in_place_of_the_bridge():
    bridge, decoy = curriculum("bridge", 3), curriculum("decoy", 3)
    assert (bridge.world(4).size, decoy.world(4).size) == (15, 19)
    (phase,) = decoy.phases
    facts, others = decoy.world(4).phase(phase), bridge.world(4).phase(bridge.phases[0])
    assert torch.equal(facts.weights, others.weights)
    fresh = decoy.world(4).tokens("d")
    assert facts.facts.targets[4:8].tolist() == fresh.tolist()
    assert not set(fresh.tolist()) & set(facts.facts.tokens.flatten().tolist())


@pytest.mark.parametrize(
    "data", [analogy_world(5).phase({"S_src": 3, "A": 1}), labelled(4, 2)]
)
def test_shuffling_permutes_answers_over_the_same_prompts(data):
    mixed = shuffle(data, torch.Generator().manual_seed(0))
    facts, others = (getattr(d, "facts", d) for d in (data, mixed))
    assert torch.equal(facts.tokens, others.tokens)
    assert not torch.equal(facts.targets, others.targets)
    assert facts.targets.sort().values.tolist() == others.targets.sort().values.tolist()


def test_weights_are_shares_of_the_multiset():
    world = analogy_world(3)
    premises = world.phase(curriculum("joint", 3).phases[0])
    copies = (premises.weights * 7 * 3).round()
    assert copies.tolist() == [3.0] * 6 + [1.0] * 3
    assert premises.weights.sum() == pytest.approx(1.0)


def test_the_two_readings_of_late_similarity_differ():
    assert set(curriculum("AS_T", 3).phases[0]) == {"S_src", "A"}
    assert set(curriculum("AS_E", 3).phases[0]) == {"A"}
    assert "A" in curriculum("AS_T", 3).with_replay().phases[1]
    assert "A" not in curriculum("AS_T", 3).phases[1]


@pytest.mark.parametrize("name", NAMES)
def test_no_curriculum_teaches_the_test(name):
    taught = curriculum(name, 2)
    world = taught.world(4)
    tests = {tuple(prompt) for prompt in world.conclusions().test.tokens.tolist()}
    for phase in taught.phases:
        prompts = {tuple(prompt) for prompt in world.phase(phase).facts.tokens.tolist()}
        assert not tests & prompts


def test_unknown_curriculum_names_the_valid_ones():
    with pytest.raises(BadInput, match="choose from: joint, SA"):
        curriculum("AS", 3)


def test_data_do_not_depend_on_the_seed():
    draw = analogy_world(3).draw({"A": 1})
    assert torch.equal(draw(0, 0).facts.tokens, draw(5, 9).facts.tokens)


class Table(torch.nn.Module):
    """Answers by a table over (entity, relation)."""

    def __init__(self, size, facts):
        super().__init__()
        self.scores = torch.zeros(size, size, size)
        for facts_of_set in facts:
            entity, relation = facts_of_set.tokens.T
            self.scores[entity, relation, facts_of_set.targets] = 1.0

    def forward(self, tokens):
        return self.scores[tokens[:, 0], tokens[:, 1]][:, None]


def test_hits_count_over_the_whole_vocabulary_and_among_the_answers():
    world = analogy_world(5)
    asked = world.conclusions()
    right = Table(world.size, [asked.test])
    assert hits(right, asked.test) == hits_among(right, asked.test) == 1
    drifted = Table(world.size, [asked.test])
    entity, relation = asked.test.tokens.T
    drifted.scores[entity, relation, asked.shared] = 2.0
    assert hits(drifted, asked.test) == 0
    assert hits_among(drifted, asked.test) == 1
    assert hits(Table(world.size, [asked.known]), asked.test) == 0


def test_one_pass_scores_as_separate_ones_do():
    world = analogy_world(5)
    asked = world.conclusions()
    shape = DecoderConfig(d_vocab=world.size, d_model=8, n_layers=2, n_heads=2, n_ctx=2)
    model = Decoder(shape, generator=torch.Generator().manual_seed(0))
    found = scores(gpt_reading, model, asked)
    assert found["success"] == hits(model, asked.test)
    assert found["c_only"] == hits_among(model, asked.test)
    assert found["known"] == hits(model, asked.known)
    known, test = (
        model.final_norm(model.through(model.embed(prompts.tokens)))[:, -1]
        for prompts in (asked.known, asked.test)
    )
    paired = torch.cosine_similarity(known, test).mean()
    torch.testing.assert_close(found["similarity"], paired)
