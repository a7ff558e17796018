from dataclasses import replace

import pytest

from circuits.claims import Claim, near
from circuits.studies.recall.claims import TITLE, claims
from trained.recall.config import PAPER, QUICK, Config

CONFIGS = {
    "quick": QUICK,
    "paper": PAPER,
    "three subjects": Config(n_subjects=3, n_relations=6),
    "three examples": replace(QUICK, n_examples=3),
    "four examples": replace(QUICK, n_examples=4, n_subjects=16),
    "one size": replace(QUICK, sample_sizes=(4,)),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_ids_are_unique_and_belong_to_the_study(name):
    ids = [claim.id for claim in claims(CONFIGS[name])]
    assert len(set(ids)) == len(ids)
    assert all(key.startswith("recall.") for key in ids)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_claim_has_a_statement_a_source_and_a_named_control(name):
    for claim in claims(CONFIGS[name]):
        assert isinstance(claim, Claim)
        assert claim.statement.endswith(".")
        assert claim.source
        assert claim.control.name


def test_the_paper_is_named():
    assert "Factual Recall" in TITLE


def test_every_kind_of_claim_is_there():
    kinds = {claim.kind for claim in claims(QUICK)}
    assert kinds == {"behaviour", "signal", "causal", "theory"}


def test_the_paper_preset_adds_figures_and_temperatures():
    more = {c.id for c in claims(PAPER)} - {c.id for c in claims(QUICK)}
    for prefix in ("recall.fig2b.", "recall.fig4.", "recall.fig3.random-16."):
        assert any(key.startswith(prefix) for key in more), prefix
    assert "recall.theorem3.probability-T0.002" in more


def test_interventions_are_written_for_two_examples_only():
    ids = {claim.id for claim in claims(CONFIGS["three examples"])}
    assert "recall.cause.saddle" not in ids
    assert "recall.types.confusing" not in ids
    assert "recall.cause.query" in ids


def test_chance_follows_the_sizes():
    by_id = {claim.id: claim for claim in claims(CONFIGS["three subjects"])}
    assert by_id["recall.nocot.accuracy"].expected == near(1 / 3, 1e-6)
    assert by_id["recall.nocot.accuracy"].paper == pytest.approx(1 / 3)
    assert by_id["recall.cause.one-pair"].expected == near(1 / 2, 0.02)


def test_only_partial_fine_tuning_is_gated_in_figure_3():
    gated = {c.id for c in claims(PAPER) if c.id.startswith("recall.fig3") and c.gated}
    assert gated == {
        f"recall.fig3.{table}.partial"
        for table in ("affine", "random-8", "random-16", "random-32")
    }


def test_full_fine_tuning_cut_short_is_judged_more_widely():
    def expected(config):
        by_id = {claim.id: claim for claim in claims(config)}
        return by_id["recall.fig2.full-affine.within-pair"].expected

    assert expected(QUICK) == "<= 1.1"
    assert expected(PAPER) == "<= 1.05"
