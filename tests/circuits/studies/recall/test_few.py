"""Few prompts: quantities of scores that are known, and of none."""

import math

import pytest
import torch

from circuits.claims import judge
from circuits.studies.recall.claims import claims
from circuits.studies.recall.lab.few import Ended, two_step_accuracy
from tests.circuits.studies.recall import planted
from tests.circuits.studies.recall.planted import (
    LOOKS_AT_QUERY,
    gridded,
    lab_of,
    scores,
)
from trained.recall.cells import Cell
from trained.recall.config import Config, Partial
from trained.recall.task import all_bijections, all_episodes
from trained.recall.theory_config import Few, FirstStep, Rate

CONFIG = Config(
    few=Few(subjects=(7, 8), sizes=(1, 8, 16, 32), n_test=300, n_decode=60),
    first_step=FirstStep(subjects=8, prompts=64, draws=3),
    rate=Rate(subjects=8, draws=2, reach=0.02, temperatures=(0.008, 0.004)),
    partial=Partial(subjects=(8,), quarter=8, draws=3, population=200),
    n_test=300,
)
BALANCED = scores(0.22, 0.16, 0.22, 0.16, 0.08, 0.16)
"""As after stage 1: the pairs are equal, so a confusing relation ties."""
DECIDED = scores(0.16, 0.10, 0.30, 0.22, 0.06, 0.16)
"""As after stage 2: one pair is heavier."""
T, N = 0.002, 32


@pytest.fixture
def lab(tmp_path):
    return lab_of(tmp_path, {}, CONFIG)


def judged(lab, name):
    by_id = {claim.id.removeprefix("recall."): claim for claim in claims(lab.config)}
    return judge(by_id[name], lab)


def states(verdict):
    return [outcome.state for outcome in verdict.conditions]


def test_a_heavier_pair_solves_confusing_prompts_and_equal_ones_do_not(lab):
    solved = gridded(lab, "few-0.002", DECIDED, LOOKS_AT_QUERY)
    tied = gridded(lab, "few-0.002", BALANCED, LOOKS_AT_QUERY)
    for n in (7, 8):
        assert min(solved.few("confusing", T, n, N)) > 0.999
        assert min(solved.few("least", T, n, N)) > 0.999
        assert tied.few("confusing", T, n, N) == pytest.approx([0.5] * 10, abs=1e-6)
    # (v1 - v3)(v2 - v4) = (-.14)(-.12)
    assert solved.few("product", T, 8, N) == pytest.approx([0.0168] * 10, abs=1e-6)
    assert tied.few("product", T, 8, N) == pytest.approx([0] * 10, abs=1e-9)
    assert solved.few("ratio", T, 8, N) == pytest.approx([1.6] * 10, abs=1e-6)


def test_the_grid_is_judged_by_its_draws(lab):
    solved = judged(
        gridded(lab, "few-0.002", DECIDED, LOOKS_AT_QUERY), "few.n-grid.confusing"
    )
    # All cells are equally good here, so one prompt is too: that must be noticed.
    assert states(solved) == ["holds", "holds"]
    assert solved.word == "inconclusive"
    assert [n.meets for n in solved.nulls] == [True] * 5
    tied = gridded(lab, "few-0.002", BALANCED, LOOKS_AT_QUERY)
    assert judged(tied, "few.n-grid.confusing").word == "refuted"
    assert judged(lab, "few.n-grid.all").word == "not tested"


def test_agreement_counts_what_was_seen(lab):
    solved = gridded(lab, "few-0.002", DECIDED, LOOKS_AT_QUERY)
    found = [share.hits for share in solved.agreement(T)]
    seen = [
        float(saw)
        for n in (7, 8)
        for size in (1, 8, 16, 32)
        for saw in solved.few("saw_confusing", T, n, size)
    ]
    assert found == seen
    assert 0 < sum(seen) < len(seen)
    assert solved.success(T, 8, 1) == (10, 10)
    assert not any(solved.few("saw_confusing", T, 8, N, plain=True))


def test_the_real_model_decodes_what_the_scores_give(lab):
    solved = gridded(lab, "few-0.002", DECIDED, LOOKS_AT_QUERY)
    assert solved.decoded(T, 8, N) == [1] * 10
    tied = gridded(lab, "few-0.002", BALANCED, LOOKS_AT_QUERY)
    # Among two relations by lot; the wrong one may give the right answer.
    found = tied.decoded(T, 8, N, confusing=True)
    assert 0.4 < sum(found) / 10 < 0.75


def test_ties_are_drawn_by_lot():
    model = planted.known(all_bijections(3), 0, planted.UNIFORM)
    every = all_episodes(all_bijections(3), 2)
    # All six relations tie, two of which give the right answer.
    found = [two_step_accuracy(model, every, seed) for seed in range(30)]
    assert sum(found) / 30 == pytest.approx(1 / 3, abs=0.05)


def test_log_odds_of_wrong_answers_are_the_worst_met():
    cell = Cell(8, 1, 0, 0.004)
    query = scores(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0)
    zero = torch.zeros(6, dtype=torch.float64)
    sure = Ended(cell, 0, 100, zero, query, -1e6)
    assert sure.odds == pytest.approx(-500 + math.log(7), abs=1e-2)
    shaken = Ended(cell, 0, 100, zero, query, -3.0)
    assert shaken.odds == -3.0
    blind = Ended(cell, 0, 100, zero, torch.zeros(7).double(), -1e6)
    assert blind.odds > 0


def test_certain_answers_confirm_lemma_2_and_uncertain_ones_do_not(lab):
    sure = gridded(lab, "few-0.002", DECIDED, LOOKS_AT_QUERY)
    assert judged(sure, "few.step2").word == "confirmed"
    blind = gridded(lab, "few-0.002", DECIDED, torch.zeros(7))
    assert judged(blind, "few.step2").word == "refuted"


def test_stage_one_leaves_confusing_prompts_undecided(lab):
    tied = gridded(lab, "first-step", BALANCED, LOOKS_AT_QUERY)
    found = judged(tied, "few.stage1")
    assert states(found)[:4] == ["holds"] * 4
    early = gridded(lab, "first-step", DECIDED, LOOKS_AT_QUERY)
    assert judged(early, "few.stage1").word == "refuted"


def test_position_scores_are_held_against_the_population(lab):
    best = gridded(
        lab, "partial", scores(0.18, 0.18, 0.32, 0.32, 0.0, 0.0), LOOKS_AT_QUERY
    )
    table = ("random", 8)
    assert max(map(abs, best.partial("excess", table, 8))) < 0.01
    assert best.partial("relative", table, 8) == pytest.approx([1] * 3, abs=1e-6)
    assert best.partial("answered", table, 8) == [1] * 3
    mirror = gridded(
        lab, "partial", scores(0.32, 0.32, 0.18, 0.18, 0.0, 0.0), LOOKS_AT_QUERY
    )
    assert max(map(abs, mirror.partial("excess", table, 8))) < 0.01
    lost = lab.with_models({}).untrained().other(builds=mirror.builds)
    assert min(lost.partial("excess", table, 8)) > 0.5
