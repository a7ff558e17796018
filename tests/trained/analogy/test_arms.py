import pytest
import torch

from trained.analogy.arms import arms, labelled
from trained.analogy.block_arms import first_phase_step, fitted_step, later_steps
from trained.analogy.config import PRESETS, Config, Linear
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
    for name in ("block-AS_T", "block-AS_T-replay", "block-AS_E"):
        first, *later = (stage.trainable for stage in by_name(Config())[name].stages)
        assert first == ("blocks.0.attn.*",)
        assert set(later) == {("head",)}


def test_only_the_unfrozen_arms_train_them_again():
    made = by_name(Config())
    for name, arm in made.items():
        if name.startswith("block-"):
            stages = [stage.trainable for stage in arm.stages]
            again = ("blocks.0.attn.*",) in stages[1:]
            assert again == name.endswith("-unfrozen"), name
    first, _, again, *_ = made["block-AS_T-unfrozen"].stages
    assert again.steps == first.steps
    share = again.optimiser.lr / first.optimiser.lr
    assert share == pytest.approx(Config().values.unfrozen)


def test_a_replay_teaches_the_attribution_throughout():
    made = by_name(Config())
    for name in ("block-AS_T-replay", "block-given-replay"):
        last = made[name].stages[-1].data(0, 0).facts
        known = made[name].held_out(0).known.tokens
        assert all((last.tokens == prompt).all(1).any() for prompt in known)
    alone = made["block-AS_T"].stages[-1].data(0, 0).facts
    assert not (alone.tokens == known[0]).all(1).any()


def test_what_claims_look_back_at_is_saved():
    config, made = Config(), by_name(Config())
    first, late = first_phase_step(config), later_steps(config)
    assert made["block-SA"].save_steps == (first,)
    assert made["block-AS_T"].save_steps == (first, *late)
    assert made["block-AS_T-replay"].save_steps == late
    assert late[0] == fitted_step(config)
    assert late[-1] == made["block-AS_T"].steps
    assert made["relu-main-SA"].save_steps == (config.relu.steps,)
    assert made["gpt-AS_E"].save_steps == (config.gpt.steps,)
    assert by_name(Config(ours=False))["gpt-AS_E"].save_steps == ()


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_every_curriculum_of_gpt_and_relu_takes_as_many_steps(preset):
    """They ended at the paper's loss, which made Table 5's column a tautology."""
    for name, arm in by_name(PRESETS[preset].config).items():
        if name.startswith(("gpt", "relu")):
            assert {stage.stop_below for stage in arm.stages} == {None}
            assert len({stage.steps for stage in arm.stages}) == 1


def test_plain_descent_takes_its_steps_once():
    config = override(Config(), ["head.plain_steps=20000"])
    arm = by_name(config)["block-AS_T-plain"]
    assert arm.max_seeds == 1
    assert arm.stages[-1].steps * arm.stages[-1].loss.iterations == 20000
    assert "block-AS_T-plain" not in by_name(Config())


def test_labelled_inputs_share_labels_and_the_null_does_not():
    made = by_name(Config())
    shared, own = (
        made[name].stages[0].data(0, 0) for name in ("gpt-labelled", "gpt-own_labels")
    )
    assert shared.targets.tolist()[:4] == [0, 0, 1, 1]
    assert own.targets.tolist()[:4] == [0, 1, 2, 3]
    assert torch.equal(shared.tokens, own.tokens)
    one, other = (made[n].build(0) for n in ("gpt-labelled", "gpt-own_labels"))
    assert torch.equal(one.W_E, other.W_E)


def test_nulls_have_few_seeds_and_the_papers_arms_all():
    few = {name for name, arm in by_name(Config()).items() if arm.max_seeds == 1}
    assert {"block-omitted", "block-decoy", "gpt-permuted", "gpt-decoy"} <= few
    assert not any(name.endswith(("joint-k3", "-SA", "-bridge")) for name in few)


def test_twins_are_trained_on_permuted_answers():
    names = by_name(Config(twins=True))
    twins = {name for name in names if name.endswith("-shuffled")}
    assert names.keys() - twins == by_name(Config()).keys()
    assert {"block-SA-shuffled", "gpt-bridge-shuffled", "linear-2-shuffled"} <= twins
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
    arm, _ = arms(Config(parts=("linear",), linear=Linear(layers=4, width=64)))
    trained = [stage.trainable for stage in arm.stages]
    assert trained == [("blocks.0.*",), ("blocks.1.*",), ("blocks.2.*",)]
    assert len(arm.build(0).blocks) == 3


def test_linear_inputs_are_orthonormal_and_depend_on_the_seed():
    arm, _ = arms(Config(parts=("linear",), linear=Linear(layers=4, width=64)))
    one, other = arm.build(0).W_E, arm.build(1).W_E
    assert torch.allclose(one @ one.T, torch.eye(len(one)), atol=1e-5)
    assert not torch.allclose(one, other)


def test_inputs_of_a_label_follow_each_other():
    data = labelled(4, 2)
    assert data.targets.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.tokens.shape == (8, 1)
    assert labelled(2, 4).targets.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_settings_reach_the_stages():
    config = override(
        Config(), ["gpt.steps=7", "relu.loss=0.02", "head.check_every=25"]
    )
    made = by_name(config)
    assert made["gpt-SA"].stages[0].steps == 7
    assert made["gpt-SA"].save_steps == (7,)
    assert made["relu-main-SA"].stages[0].stop_below == 0.02
    assert made["block-SA"].stages[1].steps == 2000 // 25
