import pytest
import torch

from trained.analogy.arms import arms, labelled
from trained.analogy.block_arms import first_phase_step, fitted_step
from trained.analogy.config import Config, Linear
from trained.config import override


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
    assert arm.save_steps == (fitted_step(config),)
    assert sum(stage.steps for stage in arm.stages[:3]) == fitted_step(config)


def test_what_claims_look_back_at_is_saved():
    config, made = Config(), by_name(Config())
    first, fitted = first_phase_step(config), fitted_step(config)
    assert made["block-SA"].save_steps == (first,)
    assert made["block-AS_T"].save_steps == (first, fitted)
    assert made["relu-main-SA"].save_steps == (config.relu.steps,)
    assert made["gpt-AS_E"].save_steps == (config.gpt.steps,)
    assert by_name(Config(ours=False))["gpt-AS_E"].save_steps == ()


def test_nulls_have_few_seeds_and_the_papers_arms_all():
    few = {name for name, arm in by_name(Config()).items() if arm.max_seeds == 1}
    assert {"block-omitted", "block-decoy", "gpt-permuted", "gpt-decoy"} <= few
    assert not any(name.endswith(("joint-k3", "-SA", "-bridge")) for name in few)


def test_twins_are_trained_on_permuted_answers():
    names = by_name(Config(twins=True))
    twins = {name for name in names if name.endswith("-shuffled")}
    assert names.keys() - twins == by_name(Config()).keys()
    assert {"block-SA-shuffled", "gpt-bridge-shuffled", "linear-shuffled"} <= twins
    assert "block-omitted-shuffled" not in twins
    real, twin = (names[f"gpt-SA{end}"] for end in ("", "-shuffled"))
    one, other = (arm.stages[0].data(0, 0).facts for arm in (real, twin))
    assert torch.equal(one.tokens, other.tokens)
    assert not torch.equal(one.targets, other.targets)


def test_arms_of_one_task_start_from_the_same_weights():
    arms_by_name = by_name(Config())
    one = arms_by_name["block-SA"].build(2).state_dict()
    other = arms_by_name["block-AS_T"].build(2).state_dict()
    assert all((one[name] == other[name]).all() for name in one)


def test_no_stage_of_any_arm_teaches_the_test():
    for arm in arms(Config()):
        if arm.held_out is None:
            continue
        tests = {tuple(prompt) for prompt in arm.held_out(0).test.tokens.tolist()}
        for stage in arm.stages:
            tokens = stage.data(0, 0).facts.tokens
            assert not tests & {tuple(prompt) for prompt in tokens.tolist()}


def test_linear_layers_take_turns_from_the_bottom():
    (arm,) = arms(Config(parts=("linear",), linear=Linear(layers=4, width=64)))
    trained = [stage.trainable for stage in arm.stages]
    assert trained == [("blocks.0.*",), ("blocks.1.*",), ("blocks.2.*",)]
    assert len(arm.build(0).blocks) == 3


def test_linear_inputs_are_orthonormal_and_depend_on_the_seed():
    (arm,) = arms(Config(parts=("linear",), linear=Linear(layers=4, width=64)))
    one, other = arm.build(0).W_E, arm.build(1).W_E
    assert torch.allclose(one @ one.T, torch.eye(len(one)), atol=1e-5)
    assert not torch.allclose(one, other)


def test_inputs_of_a_label_follow_each_other():
    data = labelled(Linear(width=32, inputs_per_label=2))
    assert data.targets.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.tokens.shape == (8, 1)


def test_settings_reach_the_stages():
    config = override(
        Config(), ["gpt.steps=7", "relu.loss=none", "head.check_every=25"]
    )
    made = by_name(config)
    assert made["gpt-SA"].stages[0].steps == 7
    assert made["gpt-SA"].save_steps == (7,)
    assert made["relu-main-SA"].stages[0].stop_below is None
    assert made["block-SA"].stages[1].steps == 2000 // 25
