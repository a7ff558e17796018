"""Planted and impostor labs answer right; only the planted one has the mechanism."""

from fnmatch import fnmatchcase

import pytest
import torch

from circuits.claims import judge
from circuits.confirm import open_lab
from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.models import Specimen
from circuits.studies.lego.substitutes import (
    SUBSTITUTES,
    folded_circuit,
    standard_circuit,
)
from trained import store
from trained.lego.task import rollout

NAMES = [substitute.name for substitute in SUBSTITUTES]


@pytest.fixture(scope="module")
def shipped() -> LegoLab:
    found = open_lab(store.shipped("lego"))
    assert isinstance(found, LegoLab)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_substitutes_answer_right(shipped: LegoLab, name: str) -> None:
    lab = _made(shipped, name)
    for group in lab.config.groups:
        assert lab.learned(lab.folded(group)) == [1, 1, 1]
    for group in lab.config.standard.groups:
        assert lab.gate([group]) == [1, 1, 1]
        assert lab.banded(lab.standard(group, "plain")) == [1, 1, 1]


def test_untrained_models_of_a_substitute_are_untrained(shipped: LegoLab) -> None:
    fresh = _made(shipped, "planted").untrained()
    assert not fresh.folded("C6")[0].tables.any()


def test_shuffled_models_of_a_substitute_were_trained(shipped: LegoLab) -> None:
    made, real = (x.shuffled() for x in (_made(shipped, "planted"), shipped))
    one, other = (lab.standard("C3", "plain")[0].model for lab in (made, real))
    assert one.W_E.equal(other.W_E)


def test_attention_by_place_knows_no_longer_chains() -> None:
    model = standard_circuit("C3", 12, by_place=5)
    right = {}
    for length in (5, 10):
        specimen = Specimen("C3", 0, model.eval())
        right[length] = specimen.marks(specimen.sentences(length, 20)).all
    assert right[5] == 1
    assert right[10] < 0.5


def test_permuted_predicates_tell_place_from_variable(shipped: LegoLab) -> None:
    right = {}
    for name in ("planted", "by place"):
        several = _made(shipped, name).folded("C6")
        asked = several[0].sentences(5, 50, order="permuted")
        right[name] = several[0].marks(asked).all
    assert right["planted"] == 1
    assert right["by place"] < 0.5


@pytest.mark.parametrize("group", ["C3", "S3"])
def test_both_circuits_compute_the_same(group: str) -> None:
    ours, papers = folded_circuit(group, 12), standard_circuit(group, 12)
    specimen = Specimen(group, 0, ours.eval())
    sentences = specimen.sentences(6, 20)
    torch.testing.assert_close(
        specimen.tables, Specimen(group, 0, papers).tables, atol=1e-4, rtol=1e-4
    )
    with torch.no_grad():
        first, second = (
            rollout(m, sentences, m.vocabulary).values for m in (ours, papers)
        )
    assert torch.equal(first, sentences.values)
    assert torch.equal(second, sentences.values)


def test_nulls_confirm_nothing_of_the_paper(shipped: LegoLab) -> None:
    for absent in (shipped.untrained(), shipped.shuffled()):
        for claim in shipped.study.claims_at(shipped.config):
            if claim.origin == "paper":
                assert not judge(claim, absent).passed, claim.id


def test_what_is_planted_is_confirmed_and_impostors_are_found_out(
    shipped: LegoLab,
) -> None:
    claims = shipped.study.claims_at(shipped.config)
    for substitute in SUBSTITUTES:
        lab = substitute.make(shipped)
        for claim in claims:
            if any(fnmatchcase(claim.id, p) for p in substitute.confirms):
                verdict = judge(claim, lab)
                assert verdict.passed, (claim.id, verdict.reason)
        if substitute.role == "impostor":
            causal = [c for c in claims if c.id == "lego.conc.fig2.cause"]
            assert [judge(c, lab).word for c in causal] == ["refuted"]


def _made(lab: LegoLab, name: str) -> LegoLab:
    (substitute,) = (s for s in SUBSTITUTES if s.name == name)
    made = substitute.make(lab)
    assert isinstance(made, LegoLab)
    return made
