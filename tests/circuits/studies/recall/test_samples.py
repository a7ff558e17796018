"""Figure 3 on matrices that are known."""

import pytest
import torch

from circuits.studies.recall.lab.samples import by_attention, on_unseen
from tests.circuits.studies.recall import planted
from tests.circuits.studies.recall.planted import lab_of
from trained.recall.config import Config, Samples
from trained.recall.model import token_embedding
from trained.recall.whole import WholeScores

CONFIG = Config(
    n_test=300,
    samples=Samples(subjects=(7, 8), sizes=(1, 8), temperatures=(0.05,)),
)


def whole(good):
    """Two readings: pairwise scores in those that are good, none in the others."""

    def build(table, seed):
        embedding = token_embedding(table, seed)
        model = WholeScores(embedding, 2, spreads=(0.0,) * len(good), seed=seed)
        for matrix, is_good in zip(model.W_KQ.data, good, strict=True):
            if is_good:
                real = planted.known(table, seed)
                matrix.copy_(real.W_KQ.data)
        return model

    return build


def labs(path, **good):
    arms = {name.replace("_", "-"): whole(several) for name, several in good.items()}
    return lab_of(path, arms, CONFIG)


def test_pairwise_scores_reach_the_ceiling_and_none_do_not(tmp_path):
    lab = labs(tmp_path, whole_8_8=(True, False))
    assert lab.sampled("whole-8-8", "relative", 0) == pytest.approx([1] * 3, abs=1e-6)
    assert max(lab.sampled("whole-8-8", "relative", 1)) < 0.5
    assert lab.sampled("whole-8-8", "answered", 0) == [1] * 3
    assert lab.sampled("whole-8-8", "answered", 1) == pytest.approx([1 / 3] * 3)
    assert max(lab.sampled("whole-8-8", "accuracy", 0)) < 0.8
    assert min(lab.sampled("whole-8-8", "confusing", 0)) > 0.4


def test_the_best_reading_is_that_of_most_tables(tmp_path):
    good = {"whole_7_8": (True, False), "whole_8_8": (True, True)}
    lab = labs(tmp_path, **good)
    # Both tables reach the ceiling in the first reading, one in the second.
    assert lab.best_reading(8) == pytest.approx([1] * 3, abs=1e-6)
    worse = labs(tmp_path, whole_7_8=(False, True), whole_8_8=(True, False))
    assert max(worse.best_reading(8)) < 0.6


def test_rows_that_score_words_can_be_taken_away(tmp_path):
    def noisy(table, seed):
        model = whole((True,))(table, seed)
        model.W_KQ.data[:, 7:, 5] = 3 * torch.randn(
            model.W_KQ.shape[-1] - 7, generator=torch.Generator().manual_seed(seed)
        )
        return model

    lab = lab_of(tmp_path, {"whole-8-8": noisy}, CONFIG)
    assert max(lab.sampled("whole-8-8", "relative")) < 0.9
    alone = lab.sampled("whole-8-8", "relative", by_place=True)
    assert alone == pytest.approx([1] * 3, abs=1e-6)


def test_accuracies_are_those_of_the_real_model(tmp_path):
    lab = lab_of(tmp_path, {"full-random": planted.known}, CONFIG)
    episodes = lab.episodes("full-random", 0)
    real = lab.relation_accuracy("full-random")[0]
    model = whole((True,))(episodes.table, 0)
    assert on_unseen(model, episodes)["accuracy"][0] == pytest.approx(real, abs=1e-3)
    attention = planted.LIGHT_FIRST.softmax(0).float()
    assert by_attention(attention, episodes) == pytest.approx(real, abs=1e-3)
