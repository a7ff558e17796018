import pytest

from trained.analogy.arms import arms
from trained.analogy.config import Config
from trained.analogy.layerwise import first_phase_step, fitted_step


def by_name(config):
    return {arm.name: arm for arm in arms(config)}


def test_names_are_unique_and_every_part_is_there():
    names = [arm.name for arm in arms(Config())]
    assert len(set(names)) == len(names)
    assert {name.split("-")[0] for name in names} == {"block", "relu", "gpt", "linear"}


@pytest.mark.parametrize("part", ["block", "relu", "gpt", "linear"])
def test_a_part_alone(part):
    names = by_name(Config(parts=(part,)))
    assert names
    assert all(name.startswith(part) for name in names)


def test_curricula_choose_the_arms():
    names = by_name(Config(parts=("block", "gpt"), curricula=("SA",)))
    assert "block-SA" in names
    assert not any("AS_" in name or "joint" in name for name in names)
    assert {"block-bridge", "block-no_bridge", "gpt-bridge"} <= names.keys()


def test_values_are_frozen_in_the_second_phase():
    arm = by_name(Config())["block-AS_T"]
    trained = [stage.trainable for stage in arm.stages]
    assert trained == [("blocks.0.attn.*",), ("head",), ("head",), ("head",)]


def test_the_replay_arm_lets_them_go_only_after_the_fit():
    config = Config()
    arm = by_name(config)["block-AS_E-replay"]
    assert [stage.name for stage in arm.stages] == [
        "values",
        "head",
        "fit",
        "values again",
        "late",
    ]
    assert arm.save_steps == (first_phase_step(config), fitted_step(config))
    assert sum(stage.steps for stage in arm.stages[:3]) == fitted_step(config)


def test_arms_of_one_task_start_from_the_same_weights():
    arms_by_name = by_name(Config())
    one = arms_by_name["block-SA"].build(2).state_dict()
    other = arms_by_name["block-AS_T"].build(2).state_dict()
    assert all((one[name] == other[name]).all() for name in one)
