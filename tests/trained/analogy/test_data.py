import pytest
import torch

from trained.analogy.arms import arms
from trained.analogy.config import Config
from trained.analogy.data import analogy_world, curriculum, two_hop_world
from trained.errors import BadInput

NAMES = (
    "joint",
    "SA",
    "AS_T",
    "AS_E",
    "permuted",
    "bridge",
    "no_bridge",
    "permuted_bridge",
    "half_bridge",
)


def test_worked_example_of_the_docstring():
    world = analogy_world(2)
    assert world.size == 10
    prompts, answers = world.premises("S_tgt")
    assert prompts.tolist() == [[2, 8], [3, 8]]
    assert answers.tolist() == [4, 5]
    asked = world.conclusions()
    assert asked.test.tolist() == [[2, 9], [3, 9]]
    assert asked.known.tolist() == [[0, 9], [1, 9]]
    assert asked.answer.tolist() == [6, 7]


def test_two_hop_takes_the_bridge_as_source():
    world = two_hop_world(2)
    assert world.size == 9
    prompts, answers = world.premises("ID")
    assert prompts.tolist() == [[2, 8], [3, 8]]
    assert answers.tolist() == [2, 3]
    asked = world.conclusions()
    assert asked.source.tolist() == [2, 3]
    assert asked.test.tolist() == [[0, 7], [1, 7]]


def test_shifted_and_halved_sets():
    world = two_hop_world(4)
    assert world.premises("ID+1")[1].tolist() == [5, 6, 7, 4]
    assert world.premises("ID/2")[1].tolist() == [4, 5]
    with pytest.raises(BadInput, match="unknown premise set 'X'"):
        world.premises("X")


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
    tests = {tuple(prompt) for prompt in world.conclusions().test.tolist()}
    for phase in taught.phases:
        prompts = {tuple(prompt) for prompt in world.phase(phase).tokens.tolist()}
        assert not tests & prompts


def test_no_stage_of_any_arm_teaches_the_test():
    for arm in arms(Config()):
        if arm.held_out is None:
            continue
        tests = {tuple(prompt) for prompt in arm.held_out(0).test.tolist()}
        for stage in arm.stages:
            tokens = stage.data(0, 0).tokens
            assert not tests & {tuple(prompt) for prompt in tokens.tolist()}


def test_unknown_curriculum_names_the_valid_ones():
    with pytest.raises(BadInput, match="choose from: joint, SA"):
        curriculum("AS", 3)


def test_data_do_not_depend_on_the_seed():
    draw = analogy_world(3).draw({"A": 1})
    assert torch.equal(draw(0, 0).tokens, draw(5, 9).tokens)
