import math
from dataclasses import replace

import pytest
import torch

from trained.ensemble import leaves
from trained.recall import arms as study
from trained.recall.config import (
    PAPER,
    QUICK,
    READINGS,
    Config,
    Partial,
    Pretrained,
    Samples,
    Triple,
)
from trained.recall.model import RecallModel, constructed_model, fact_loss
from trained.recall.scores import PositionScores
from trained.recall.task import draw_facts
from trained.recall.theory_config import Few, FirstStep, Rate, Warmup
from trained.recall.whole import WholeScores
from trained.seeding import generator
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

SMALL = Config(
    n_subjects=7,
    n_relations=20,
    few=Few(subjects=(5, 7), sizes=(1, 4), draws=2, reach=0.01),
    first_step=FirstStep(subjects=8, prompts=16, draws=2),
    rate=Rate(subjects=8, prompts=4, draws=2, reach=0.01),
    partial=Partial(subjects=(5,), quarter=8, draws=2),
    samples=Samples(subjects=(5,), sizes=(1, 4), beyond=(16,), modes=("adam", "gd")),
    triple=Triple(steps=2, relations=30),
    pretrained=Pretrained(
        steps=3, fine_steps=2, triple_steps=1, readings=READINGS, widths=(1, 2)
    ),
)


def by_name(config):
    return {arm.name: arm for arm in study.arms(config)}


def test_names_are_unique_and_every_figure_is_there():
    names = [arm.name for arm in study.arms(PAPER)]
    assert len(set(names)) == len(names)
    cells = [n for n in names if n.startswith("whole-") and "shuffled" not in n]
    assert len(cells) == 3 * (6 + 1)
    assert len(by_name(PAPER)["whole-16-8"].build(0).W_KQ) == 4
    assert len(by_name(PAPER)["whole-16-512"].build(0).W_KQ) == 1
    assert {n for n in names if n.startswith("fig4a")} == {
        *(f"fig4a-{r}-{w}" for r in READINGS for w in (3, 12)),
        *(f"fig4a-{r}-3{end}" for r in READINGS[:2] for end in ("-raw", "-shuffled")),
    }
    assert {n for n in names if n.startswith("fig4b")} == {
        f"fig4b-{r}{end}" for r in READINGS[:2] for end in ("", "-raw", "-shuffled")
    }
    assert {n for n in names if not n.startswith(("whole", "gd", "fig4"))} == {
        *("warmup", "first-step", "rate-0.008", "rate-0.004", "rate-0.002"),
        *("few-0.002", "few-0.001", "partial", "partial-shuffled"),
        *("direct", "direct-two-step", "direct-unfrozen", "full-affine"),
        *("full-random", "full-random-hot", "full-random-shuffled"),
        *("triple", "triple-hot", "triple-shuffled"),
    }
    # What takes long comes last.
    assert names[-1].startswith(("triple", "fig4b"))


def test_figures_are_left_out_without_steps():
    names = by_name(replace(QUICK, pretrained=Pretrained(steps=0)))
    assert not any(n.startswith(("triple", "fig4")) for n in names)


def test_nulls_have_fewer_seeds_and_draws_do_not_grow_with_the_seeds():
    arms = by_name(PAPER)
    assert arms["full-random"].max_seeds == arms["triple"].max_seeds == 3
    assert arms["full-random-hot"].max_seeds == arms["fig4b-warm-raw"].max_seeds == 1
    for name in ("warmup", "few-0.002", "rate-0.004", "first-step", "partial"):
        assert arms[name].max_seeds == 1
    assert len(arms["warmup"].build(301).theta) == 4 * 2 * 20
    assert len(arms["few-0.001"].build(301).theta) == 3 * (7 + 1) * 10


@pytest.mark.parametrize("name", by_name(SMALL))
def test_every_arm_gives_a_finite_loss_from_its_data(name):
    arm = by_name(SMALL)[name]
    model = arm.build(1)
    for stage in arm.stages:
        loss = stage.loss(model, stage.data(1, 0))
        assert loss.shape == ()
        assert torch.isfinite(loss)


def test_models_by_mode():
    arms = by_name(SMALL)
    kinds = {
        "full-affine": RecallModel,
        "partial": PositionScores,
        "few-0.002": PositionScores,
        "whole-5-4": WholeScores,
        "gd-5-4": WholeScores,
        "fig4a-caption-1": RecallModel,
        "warmup": PositionScores,
    }
    for name, kind in kinds.items():
        assert isinstance(arms[name].build(0), kind)


def test_only_the_key_query_matrix_is_fine_tuned():
    arms = by_name(SMALL)
    for name in ("full-affine", "full-random", "direct"):
        assert arms[name].stages[0].trainable == ("*W_KQ",)
    assert arms["direct-unfrozen"].stages[0].trainable == ("*",)
    pretrain, fine_tune = arms["fig4a-caption-1"].stages
    assert pretrain.trainable == ("*",)
    assert fine_tune.trainable == ("*W_KQ",)
    assert arms["fig4a-caption-1"].save_steps == (SMALL.pretrained.steps,)
    assert [stage.name for stage in arms["fig4a-warm-1-raw"].stages] == ["fine-tune"]


def test_the_memory_is_learned_by_adam_without_decay_as_in_section_5():
    arms = by_name(SMALL)
    for reading, kind in (("caption", "adam"), ("warm", "adam"), ("decay", "adamw")):
        optimiser = arms[f"fig4a-{reading}-1"].stages[0].optimiser
        assert (optimiser.kind, optimiser.decay) == (kind, 0.0)
        assert (optimiser.weight_decay > 0) == (reading == "decay")


def test_the_caption_has_its_temperature_in_both_phases():
    arms = by_name(SMALL)

    def heats(name):
        return [s.loss.keywords["temperature"] for s in arms[name].stages]

    assert heats("fig4a-caption-2") == [0.05, 0.05]
    assert heats("fig4a-warm-2") == [1.0, 0.05]
    assert heats("fig4b-caption") == [0.01, 0.01]
    assert heats("full-random-hot") == [0.12]


def test_the_memory_that_is_pretrained_starts_small_and_wide():
    model = by_name(SMALL)["fig4a-caption-2"].build(0)
    assert model.memory.W_in.shape == (2 * 49, 35)
    assert float(model.memory.W_in.detach().std()) == pytest.approx(0.05, rel=0.05)
    constructed = by_name(SMALL)["full-random"].build(0)
    assert torch.equal(constructed.W_KQ, model.W_KQ)


def test_shuffled_facts_are_followed_by_real_prompts():
    arms = by_name(SMALL)
    real, spoiled = arms["fig4a-caption-1"], arms["fig4a-caption-1-shuffled"]
    one, other = (arm.stages[0].data(0, 3) for arm in (real, spoiled))
    assert torch.equal(one.tokens, other.tokens)
    assert not torch.equal(one.targets, other.targets)
    one, other = (arm.stages[1].data(0, 3)["relation"] for arm in (real, spoiled))
    assert torch.equal(one.targets, other.targets)


def test_a_seed_always_draws_the_same_and_another_does_not():
    stage = by_name(SMALL)["full-random"].stages[0]
    one, again, other, later = (
        torch.cat([leaf.flatten() for leaf in leaves(stage.data(seed, step))])
        for seed, step in ((0, 5), (0, 5), (1, 5), (0, 6))
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one, later)


def test_optimisers_of_figure_3_see_the_same_prompts():
    arms = by_name(SMALL)
    tokens = {
        name: arms[name].stages[0].data(0, 0)["tokens"]
        for name in ("whole-5-4", "gd-5-4")
    }
    assert torch.equal(*tokens.values())
    assert tokens["gd-5-4"].shape == (4, 7)


def test_what_figure_3_is_tested_on_was_not_learned_from():
    setting = study.settings(SMALL)["whole-5-16"]
    seen, tests = setting.prompts(0), setting.unseen(400, 0)
    assert not torch.isin(tests.codes, seen.codes).any()


def test_held_out_prompts_are_the_unseen_ones():
    arm, setting = by_name(SMALL)["full-affine"], study.settings(SMALL)["full-affine"]
    batch = arm.held_out(0)
    unseen = setting.unseen(SMALL.n_test, 0).relation_step()
    assert torch.equal(batch.tokens, unseen.tokens)
    assert set(batch.roles) >= {"subject0", "answer1", "query", "end"}


def test_the_constructed_model_starts_from_a_small_matrix():
    model = by_name(QUICK)["full-affine"].build(0)
    assert float(model.W_KQ.detach().std()) == pytest.approx(0.02, rel=0.05)
    wide = by_name(replace(QUICK, spread=0.1))["full-affine"].build(0)
    assert torch.allclose(wide.W_KQ, 5 * model.W_KQ)


def test_facts_are_asked_over_the_whole_vocabulary():
    table = study.settings(SMALL)["full-affine"].table(0)
    # Exactly equal tokens: the loss is the logarithm of the vocabulary's size.
    model = constructed_model(table, 2, 0)
    model.memory.W_out.data.zero_()
    batch = draw_facts(table, 10, generator=generator(0, "facts"))
    loss = fact_loss(model, batch, temperature=1.0)
    assert loss.item() == pytest.approx(math.log(57), abs=1e-5)


WARM = Warmup(temperatures=(0.05,), draws=8, steps=300, escape_steps=300)


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A short warm-up: the query's and EoS' weights fall like 1 / steps."""
    config = replace(QUICK, warmup=WARM)
    run = Run.create(tmp_path_factory.mktemp("warm") / "run", {"seeds": [0, 1]})
    train(run, [by_name(config)["warmup"]], engine=Engine())
    return run


def test_symmetric_gradients_end_at_the_saddle(warm):
    weights = warm.weights("warmup", WARM.saddle)["theta"]
    assert len(weights) == 1
    attention = weights[0].softmax(-1)
    saddle = torch.tensor([0.25, 0.25, 0.25, 0.25, 0, 0], dtype=torch.float64)
    assert float((attention - saddle).abs().max()) < 0.02
    # The pairs are exactly equal, so the two relations tie exactly.
    assert torch.equal(attention[:, 0], attention[:, 2])
    assert torch.equal(attention[:, 1], attention[:, 3])


def test_a_perturbation_leaves_it_for_the_pairwise_pattern(warm):
    copies = warm.weights("warmup")["theta"].unflatten(1, (2, 2, -1)).softmax(-1)
    draws = copies[:, 0, 0].flatten(0, 1)
    for v in draws:
        ordered = v.sort().values
        assert ordered[2:4].tolist() == pytest.approx([0.133] * 2, abs=5e-3)
        assert ordered[4:].tolist() == pytest.approx([0.367] * 2, abs=5e-3)
        # The two equal tokens are one pair, not one of each.
        assert abs(v[0] - v[1]) < abs(v[0] - v[2])
    assert (draws[:, 0] < draws[:, 2]).unique().numel() == 2
    # Nothing parts the pairs of a symmetric perturbation; at high temperature one goes.
    symmetric, hot = copies[:, 0, 1].flatten(0, 1), copies[:, 1, 0].flatten(0, 1)
    assert torch.equal(symmetric[:, :2], symmetric[:, 2:4])
    assert float(torch.minimum(hot[:, 0], hot[:, 2]).max()) < 0.01


def test_the_course_of_the_first_draw_is_recorded(warm):
    course = warm.metrics("warmup")
    # Binary digits of eight draws: all are past the escape at the end.
    assert float(course["psi0.05-past"][0, -1]) in range(256)
    assert float(course["bare0.05-rises"].max()) == 0
    path = torch.stack([course[f"key{i}"][0] for i in range(6)])
    assert path[:, 0].tolist() == pytest.approx([1 / 6] * 6)
    end = warm.weights("warmup")["theta"][0, 0].softmax(-1)
    assert torch.allclose(path[:, -1], end)
    assert course["step"][-1] == 60


def test_symmetric_perturbations_are_as_long_and_keep_the_pairs_equal():
    moved = by_name(QUICK)["warmup"].build(3).perturbation.detach()
    random, symmetric = moved.unflatten(0, (4, 2, -1)).unbind(1)
    assert random.shape == (4, 20, 13)
    assert torch.allclose(random.norm(dim=-1), symmetric.norm(dim=-1))
    assert torch.allclose(symmetric[..., :2], symmetric[..., 2:4])
    assert not torch.allclose(random[..., :2], random[..., 2:4])
    other = by_name(QUICK)["warmup"].build(4).perturbation.detach()
    assert not torch.equal(moved, other)


def test_twins_are_trained_alike_on_permuted_answers():
    arms = by_name(replace(QUICK, twins=True))
    twins = {name for name in arms if name.endswith("-shuffled")}
    assert twins == {
        f"{name}-shuffled"
        for name in (
            *("full-affine", "full-random", "warmup", "partial"),
            *("whole-8-64", "fig4a-caption-3"),
        )
    }
    real, twin = (arms[n].stages[0] for n in ("full-random", "full-random-shuffled"))
    for step in ("relation", "answer"):
        one, other = real.data(0, 5)[step], twin.data(0, 5)[step]
        assert torch.equal(one.tokens, other.tokens)
        assert not torch.equal(one.targets, other.targets)
        assert torch.equal(one.targets.sort().values, other.targets.sort().values)
    targets = arms["warmup-shuffled"].stages[0].data(0, 0)["targets"]
    counts = arms["warmup"].stages[0].data(0, 0)["counts"]
    assert torch.allclose(targets, counts[0] / 6)


def test_a_twin_of_the_warm_up_looks_away_from_the_pairs(tmp_path):
    arms = by_name(replace(QUICK, twins=True, warmup=WARM))
    run = Run.create(tmp_path / "run", {"seeds": [0]})
    train(run, [arms["warmup-shuffled"]], engine=Engine())
    attention = run.weights("warmup-shuffled")["theta"][0].softmax(-1)
    assert float((attention - 1 / 6).abs().max()) < 0.01
