import math
from dataclasses import replace

import pytest
import torch

from trained.ensemble import leaves
from trained.recall import arms as study
from trained.recall import losses, setting
from trained.recall.config import PAPER, QUICK, Config
from trained.recall.model import RecallModel
from trained.recall.prompts import Vocabulary
from trained.recall.scores import PositionScores, TokenScores
from trained.seeding import generator

SMALL = Config(
    n_subjects=7,
    n_relations=20,
    sample_sizes=(1, 4),
    sample_tables=("affine", "5"),
    sample_modes=("partial", "full-gd", "full-adam"),
    pretrained_steps=3,
)


def by_name(config):
    return {arm.name: arm for arm in study.arms(config)}


def test_names_are_unique_and_every_figure_is_there():
    names = [arm.name for arm in study.arms(PAPER)]
    assert len(set(names)) == len(names)
    samples = [name for name in names if name.startswith("samples-")]
    assert len(samples) == 4 * 3 * 6
    others = {name for name in names if not name.startswith("samples-")}
    assert others == {
        "full-affine",
        "full-random",
        "partial-affine",
        "partial-random",
        "triple",
        "pretrained",
        "pretrained-cold",
        "pretrained-triple-0.01",
        "pretrained-triple-0.06",
    }


def test_figures_are_left_out_without_steps():
    names = by_name(QUICK)
    assert not any(n.startswith(("triple", "pretrained")) for n in names)


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
        "partial-affine": PositionScores,
        "samples-affine-partial-1": PositionScores,
        "samples-5-full-gd-4": TokenScores,
        "pretrained": RecallModel,
    }
    for name, kind in kinds.items():
        assert isinstance(arms[name].build(0), kind)


def test_only_the_key_query_matrix_is_fine_tuned():
    arms = by_name(SMALL)
    for name in ("full-affine", "full-random"):
        assert arms[name].stages[0].trainable == ("*W_KQ",)
    pretrain, fine_tune = arms["pretrained"].stages
    assert pretrain.trainable == ("*",)
    assert fine_tune.trainable == ("*W_KQ",)
    assert arms["pretrained"].save_steps == (0, SMALL.pretrained_steps)


def test_the_memory_that_is_pretrained_starts_small_and_wide():
    model = by_name(SMALL)["pretrained"].build(0)
    assert model.memory.W_in.shape == (12 * 49, 35)
    assert float(model.memory.W_in.detach().std()) == pytest.approx(0.05, rel=0.05)
    cold = by_name(SMALL)["pretrained-cold"].build(0)
    assert torch.equal(cold.memory.W_in, model.memory.W_in)
    assert torch.equal(cold.W_KQ, model.W_KQ)
    constructed = by_name(SMALL)["full-random"].build(0)
    assert torch.equal(constructed.W_KQ, model.W_KQ)


def test_a_seed_always_draws_the_same_and_another_does_not():
    stage = by_name(SMALL)["full-random"].stages[0]
    one, again, other, later = (
        torch.cat([leaf.flatten() for leaf in leaves(stage.data(seed, step))])
        for seed, step in ((0, 5), (0, 5), (1, 5), (0, 6))
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one, later)


def test_modes_of_figure_3_see_the_same_prompts_and_more_prompts_contain_fewer():
    arms = by_name(SMALL)
    tokens = {
        name: arms[f"samples-5-{name}"].stages[0].data(0, 0)["tokens"]
        for name in ("partial-4", "full-gd-4", "full-adam-4", "full-gd-1")
    }
    assert torch.equal(tokens["partial-4"], tokens["full-gd-4"])
    assert torch.equal(tokens["partial-4"], tokens["full-adam-4"])
    assert tokens["full-gd-1"].shape == (1, 6)
    assert tokens["full-gd-4"].shape == (4, 6)


def test_test_prompts_are_not_the_training_prompts():
    stage = by_name(QUICK)["samples-affine-partial-8"].stages[0]
    seen = {tuple(row) for row in stage.data(0, 0)["tokens"].tolist()}
    table = setting.table_of(QUICK, "affine", 0)
    unseen = setting.unseen_prompts(table, 2, 2000, 0).relation_step().tokens.tolist()
    # 56 * 336 prompts exist: a few of the 2000 coincide by chance, about one.
    assert sum(tuple(row) in seen for row in unseen) < 10


def test_tables_depend_on_the_seed_and_are_shared_between_arms():
    config = replace(QUICK, sample_tables=("8",))
    headline = setting.table_of(config, "random", 3)
    assert torch.equal(headline, setting.sample_table(config, "8", 3))
    assert not torch.equal(headline, setting.table_of(config, "random", 4))
    assert setting.triple_table(config, 0).shape == (512, 8)


def test_the_constructed_model_starts_from_a_small_matrix():
    table = setting.table_of(QUICK, "affine", 0)
    model = setting.constructed_model(table, 2, 0)
    assert float(model.W_KQ.detach().std()) == pytest.approx(0.02, rel=0.05)
    again = setting.constructed_model(table, 2, 0, dtype=torch.float64)
    assert torch.allclose(model.W_E.double(), again.W_E, atol=1e-6)
    assert torch.allclose(model.W_KQ.double(), again.W_KQ, atol=1e-8)


def test_facts_leave_out_each_token_equally_often():
    table = setting.table_of(SMALL, "random", 0)
    batch = losses.draw_facts(table, 3000, generator=generator(0, "facts"))
    tokens = torch.cat([batch.tokens, batch.targets[:, None]], 1)
    subject, answer, relation = tokens.sort(1).values.unbind(1)
    assert torch.equal(table[relation - 14, subject], answer - 7)
    words = Vocabulary.of(table)
    kinds = (batch.targets >= 7).long() + (batch.targets >= 14).long()
    shares = kinds.bincount(minlength=3) / 3000
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=0.04)
    assert int(tokens.max()) < words.end
    first = (batch.tokens[:, 0] < batch.tokens[:, 1]).double().mean()
    assert float(first) == pytest.approx(0.5, abs=0.04)


def test_facts_are_asked_over_the_whole_vocabulary():
    table = setting.table_of(SMALL, "affine", 0)
    # Exactly equal tokens: the loss is the logarithm of the vocabulary's size.
    model = setting.constructed_model(table, 2, 0)
    model.memory.W_out.data.zero_()
    batch = losses.draw_facts(table, 10, generator=generator(0, "facts"))
    loss = losses.fact_loss(model, batch, temperature=1.0)
    assert loss.item() == pytest.approx(math.log(57), abs=1e-5)
