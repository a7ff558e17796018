"""Every quantity on weights set by hand, with the mechanism and without it."""

import math
from functools import partial

import pytest
import torch

from circuits.claims import NotTested
from circuits.studies.analogy.states import entity_values
from circuits.studies.analogy.substitutes import (
    LOUD,
    shared_codes,
    wire_block,
    wire_gpt,
)
from trained.analogy.arms import arms
from trained.analogy.block_arms import later_steps

from .conftest import WIRED, wire_linear, wired

N = WIRED.block.n_entities
KNOWN, ABSENT, SHIFTED = "block-joint-k3", "block-SA", "block-permuted"
LATE = "block-AS_T-replay"


def silent_targets(model, asked):
    """Targets have codes of their own, which the head does not read."""
    wire_block(model, asked, shift=None)
    n = len(asked.test)
    model.head[asked.shared] -= LOUD * torch.eye(model.W_E.shape[1])[n : 2 * n]


def share_codes(model, _):
    model.load_state_dict(shared_codes(2, STAND_IN, 0, None).state_dict())


STAND_IN = next(arm for arm in arms(WIRED) if arm.name == "gpt-labelled")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return wired(
        tmp_path_factory.mktemp("wired"),
        {
            KNOWN: wire_block,
            ABSENT: partial(wire_block, shift=None),
            SHIFTED: partial(wire_block, shift=1),
            "gpt-bridge": wire_gpt,
            "gpt-no_bridge": partial(wire_gpt, target="shared"),
            "linear-2": wire_linear,
            "gpt-labelled": share_codes,
            LATE: silent_targets,
        },
    )


def test_success_follows_the_shared_value(lab):
    assert lab.success(KNOWN) == lab.c_only(KNOWN) == [1]
    assert lab.success(ABSENT)[0] <= 1 / N
    assert lab.success(SHIFTED) == [0]
    assert lab.answers_as(SHIFTED, 1) == [1]
    assert lab.answers_as(KNOWN, 0, slice(N // 2)) == [1]


def test_sources_are_known_whether_or_not_targets_are(lab):
    for arm in (KNOWN, ABSENT, SHIFTED):
        assert lab.retained(arm) == [1]
    assert lab.retained(ABSENT, when="end") == [1]
    assert lab.untrained().retained(KNOWN)[0] <= 0.5


def test_the_shared_property_is_no_success(lab, tmp_path):
    def drifted(model, asked):
        wire_block(model, asked)
        model.head[asked.shared] *= 10

    other = wired(tmp_path, {KNOWN: drifted})
    assert other.shared_answer(KNOWN) == [1]
    assert other.success(KNOWN) == [0]
    assert other.c_only(KNOWN) == [1]
    assert lab.shared_answer(KNOWN) == [0]


def test_loss_and_premises(lab):
    taught = lab.premises(KNOWN, -1)
    assert taught.weights.sum() == pytest.approx(1)
    # r1 votes for nothing, so b and c tie there: only a part is answered.
    assert lab.loss(KNOWN)[0] < lab.untrained().loss(KNOWN)[0]
    assert 0 < lab.answered(KNOWN)[0] <= 1


def test_cosines(lab):
    assert lab.cosine(KNOWN) == pytest.approx([1], abs=1e-5)
    for arm, of in ((KNOWN, "shifted"), (ABSENT, "raw"), (SHIFTED, "raw")):
        assert lab.cosine(arm, of) == pytest.approx([0], abs=1e-5)
    # Shifted the other way round: t_i has V z of a_(i+1).
    assert abs(lab.cosine(SHIFTED, "shifted")[0]) < 0.01


def test_attention_is_even_without_weights_and_not_with_them(lab, tmp_path):
    def uneven(model, asked):
        wire_block(model, asked)
        relation = model.W_E[asked.test.tokens[0, 1]]
        entity = model.W_E[asked.known.tokens[0, 0]]
        model.blocks[0].attn.W_KQ += 30 * entity[:, None] * relation

    assert lab.imbalance(KNOWN) == [0]
    assert wired(tmp_path, {KNOWN: uneven}).imbalance(KNOWN)[0] > 0.4


def test_coefficient_is_one_for_the_predicted_displacement(tmp_path):
    def displaced(model, asked, share=1.0):
        lab_stage = stage.optimiser.lr * stage.steps * model.scale / 2
        weight = premises.weights[premises.facts.targets == asked.shared[0]].min()
        gained = model.head[asked.shared] - model.head.mean(0)
        added = share * lab_stage * weight * gained
        target = model.W_E[asked.test.tokens[:, 0]]
        model.blocks[0].attn.W_V += added.T @ target

    lab = wired(tmp_path / "probe", {KNOWN: wire_block})
    stage, premises = lab.arm(KNOWN).stages[0], lab.premises(KNOWN, 0)
    found = wired(tmp_path / "right", {KNOWN: displaced})
    assert found.coefficient(KNOWN, "target", "shared") == pytest.approx([1], abs=1e-3)
    wrong = found.coefficient(KNOWN, "target", "shared", 1)
    assert wrong == pytest.approx([0], abs=1e-3)
    ratio = found.coefficient(KNOWN, "source", "answer")
    assert ratio == pytest.approx([(3 + 1) / 34], abs=1e-3)
    half = wired(tmp_path / "half", {KNOWN: partial(displaced, share=0.5)})
    # What an even softmax would have taken from each of 34 rows is put back whole.
    ratio = half.coefficient(KNOWN, "target", "shared")
    assert ratio == pytest.approx([0.5 + 0.5 / 34], abs=1e-3)


def test_recorded_values_are_v_times_the_embedding(lab):
    model, asked = lab.model(KNOWN, 0), lab.asked(KNOWN)
    values = model.value_vectors(asked.known.tokens[:, 0])
    assert torch.allclose(entity_values(model, asked.known), values)


def test_without_the_sources_direction_the_block_loses_the_answer(lab):
    assert lab.without_source(KNOWN)[0] <= 1 / N
    assert lab.without_random(KNOWN)[0] > 0.9
    assert lab.success(KNOWN) == [1]


def test_a_target_with_another_direction_keeps_its_answer(tmp_path):
    """An impostor answers by a direction of its own, so the removal is harmless."""

    def impostor(model, asked):
        wire_block(model, asked, shift=None)
        n = len(asked.test)
        model.head[asked.test.targets] += torch.eye(model.W_E.shape[1])[n : 2 * n]
        # A trace of the source, for the removal to take.
        target = model.W_E[asked.test.tokens[:, 0]]
        model.blocks[0].attn.W_V[:n] += 0.1 * target

    other = wired(tmp_path, {KNOWN: impostor})
    assert other.success(KNOWN) == [1]
    assert other.without_source(KNOWN) == [1]


def test_prompts_that_are_told_apart_by_nothing_cannot_be_fitted(tiny):
    n = len(tiny.premises("block-AS_T", -1).facts)
    assert min(tiny.loss_alike("block-AS_T")) >= 0.99 * math.log(n)
    assert max(tiny.loss("block-AS_T")) < 0.1


def test_the_worst_kept_step_counts(tiny):
    steps = later_steps(tiny.config)
    sums = [sum(tiny.success("block-AS_T", step)) for step in steps]
    assert sum(tiny.most("success", "block-AS_T")) == max(sums)
    with pytest.raises(NotTested, match="not saved at step 1"):
        tiny.success("block-AS_T", 1)


def test_a_target_given_a_sources_displacement_answers_as_it_does(lab):
    """The wired source's V z is all displacement; the target has a code of its own."""
    assert lab.with_displacement(LATE, 0.0)[0] <= 1 / N
    assert lab.with_displacement(LATE, 0.0) == lab.success(LATE)
    assert lab.with_displacement(LATE, 1.0) == [1]
    assert lab.with_displacement(LATE, 1.0, 1) == [1]
    assert lab.with_random(LATE)[0] <= 2 / N
    # Without training there is nothing to give.
    before = lab.untrained()
    assert before.with_displacement(LATE, 1.0) == before.success(LATE)


def test_which_arms_there_are(lab):
    assert lab.has(KNOWN)
    assert not lab.has("block-AS_E")
    assert not lab.shuffled().has(KNOWN)


def test_gpt_answers_by_the_shared_code_and_loses_it(lab):
    assert lab.success("gpt-bridge") == [1]
    assert lab.cosine("gpt-bridge") == pytest.approx([1], abs=0.02)
    assert lab.without_source("gpt-bridge")[0] <= 1 / WIRED.gpt.n_entities + 1e-6
    assert lab.without_random("gpt-bridge")[0] > 0.8
    assert lab.success("gpt-no_bridge")[0] <= 1 / WIRED.gpt.n_entities + 1e-6
    assert lab.cosine("gpt-no_bridge")[0] < 0.6


def test_depth_curves_of_networks_on_labels(lab):
    ((same, other),) = lab.linear_depth(2)
    assert same[0] == pytest.approx(torch.zeros(4), abs=1e-5)
    assert same[1:] == pytest.approx(torch.ones(2, 4), abs=1e-5)
    assert other.abs().max() < 1e-5
    ((before, _),) = lab.untrained().linear_depth(2)
    assert before.abs().max() < 1e-5
    ((same, other),) = lab.labelled_depth()
    assert len(same) == WIRED.gpt.layers + 2
    means = same.mean(-1)
    assert means[0] == pytest.approx(0, abs=1e-5)
    assert means.diff().min() > -0.01
    assert means[-1] > 0.5
    assert other.mean(-1).abs().max() < 0.3
    ((before, _),) = lab.untrained().labelled_depth()
    assert before.mean(-1).abs().max() < 0.3


def test_depth_curves_of_prompts(lab):
    ((pairs, shifted),) = lab.prompt_depth("gpt-bridge", "entity")
    assert pairs[0].abs().max() < 1e-5
    assert pairs[1:].min() > 0.95
    assert shifted[0].abs().max() < 1e-5
    ((apart, _),) = lab.prompt_depth("gpt-no_bridge", "entity")
    assert apart[0].abs().max() < 1e-5
    ((last, _),) = lab.prompt_depth("gpt-no_bridge", "last")
    assert last[0] == pytest.approx(torch.ones(6), abs=1e-5)


def test_examples_are_the_test_prompts(lab):
    assert torch.equal(lab.examples(KNOWN, 0).tokens, lab.asked(KNOWN).test.tokens)
    assert lab.models(KNOWN).pattern().values.shape == (1, 1, 1, 2)
