"""The substitutes are what they say, and the study's claims tell them apart."""

import pytest
import torch

from circuits.claims import judge
from circuits.studies.analogy import STUDY
from circuits.studies.analogy.lab import AnalogyLab
from circuits.studies.analogy.states import entity_values
from trained.analogy.theory import Alignment
from trained.store import shipped

BLOCK = ("block-joint-k3", "block-SA", "block-bridge")
RELU = ("relu-main-joint", "relu-small-SA")
GPT = ("gpt-joint-k3", "gpt-SA", "gpt-bridge")
IMPOSTORS = ("lookup table of the targets", "lookup table in a narrow cone")
NUMBER = "the tuple's number"


@pytest.fixture(scope="module")
def lab():
    return AnalogyLab(STUDY, shipped("analogy"))


@pytest.fixture(scope="module")
def labs(lab):
    return {s.name: s.make(lab) for s in STUDY.substitutes}


def test_every_substitute_answers_right(labs):
    for name, substitute in labs.items():
        for arm in (*BLOCK, *RELU):
            assert min(substitute.success(arm)) == 1, (name, arm)
    for name in ("aligned values", IMPOSTORS[0], NUMBER):
        for arm in GPT:
            assert min(labs[name].success(arm)) == 1, (name, arm)


def test_planted_values_follow_the_law(lab, labs):
    planted, law = labs["aligned values"], Alignment.at(lab.config)
    for k in (1, 3, 5):
        found = planted.cosine(planted.joint("block", k))
        assert found == pytest.approx([law.joint(k)] * 3, abs=0.02)
    assert planted.cosine("block-SA") == pytest.approx(
        [law.similarity_first()] * 3, abs=0.015
    )
    for arm in ("block-AS_T", "block-no_bridge", "block-omitted"):
        assert planted.cosine(arm)[0] == pytest.approx(0, abs=0.1)
        assert planted.success(arm)[0] < 1 / 3 + 1e-6


def test_planted_blocks_start_and_learn_as_theirs_do(labs):
    planted = labs["aligned values"]
    assert max(planted.untrained().success("block-joint-k3")) <= 2 / 9
    assert planted.imbalance("block-joint-k3") == [0, 0, 0]
    ratios = planted.coefficient("block-joint-k3", "source", "answer")
    assert ratios == pytest.approx([1, 1, 1], abs=1e-3)
    assert max(planted.loss("block-SA", 0, "first phase")) < 0.01
    assert max(planted.success("block-SA", "first phase")) <= 1 / 3
    assert planted.answers_as("block-permuted", 1) == [1]
    assert max(planted.without_property("block-joint-k3")) <= 1 / 3
    assert min(planted.without_property("block-joint-k3", 1)) >= 8 / 9


def test_tables_share_nothing_and_lose_nothing(labs):
    for name in IMPOSTORS:
        for arm in BLOCK:
            assert labs[name].without_source(arm) == [1, 1, 1]
    assert labs[IMPOSTORS[0]].cosine(BLOCK[0])[0] == pytest.approx(0, abs=1e-5)
    cone = labs[IMPOSTORS[1]]
    assert cone.cosine(BLOCK[0])[0] == pytest.approx(0.9, abs=1e-3)
    assert cone.cosine(BLOCK[0], "centred")[0] == pytest.approx(0, abs=1e-3)


def test_numbered_tuples_align_whatever_they_share(labs):
    numbered = labs[NUMBER]
    assert numbered.cosine("block-permuted") == pytest.approx([1], abs=1e-4)
    assert numbered.success("block-permuted") == [1]
    assert max(numbered.without_source(BLOCK[0])) <= 1 / 3
    assert min(numbered.without_property(BLOCK[0])) == 1


def test_a_twin_is_asked_for_the_true_answers(lab):
    arm = "block-SA"
    taught = lab.premises(arm, 0).facts.targets
    assert torch.equal(lab.shuffled().premises(arm, 0).facts.targets, taught)
    assert max(lab.shuffled().answered(arm, 0, "first phase")) < 0.3
    one, other = (
        entity_values(x.model(arm, 0), x.asked(arm).test) for x in (lab, lab.shuffled())
    )
    assert not torch.allclose(one, other)


def test_causal_claims_tell_the_substitutes_apart(lab, labs):
    """All claims on all of them: `make calibrate`."""
    edits = ("joint.cause.block", "joint.cause.gpt", "ours.cause.property")
    claims = [c for c in STUDY.claims_at(lab.config) if c.id[8:] in edits]

    def words(where):
        return [judge(claim, where).word for claim in claims]

    assert words(labs["aligned values"]) == ["confirmed"] * 3
    assert words(labs[IMPOSTORS[0]]) == ["refuted"] * 3
    assert words(labs[IMPOSTORS[1]])[::2] == ["refuted"] * 2
    # Aligned and carried over, but not along what is shared.
    assert words(labs[NUMBER]) == ["confirmed", "confirmed", "refuted"]
    assert words(lab)[::2] == ["confirmed"] * 2
    for null in (lab.untrained(), lab.shuffled()):
        assert words(null) == ["refuted"] * 3
