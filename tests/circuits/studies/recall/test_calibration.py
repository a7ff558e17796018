"""Labs with a known mechanism: they answer right, and the claims tell them apart."""

import pytest

from circuits.claims import judge
from circuits.confirm import open_lab
from circuits.studies.recall import STUDY, substitutes
from circuits.studies.recall.lab.optimum import SADDLE
from tests.circuits.studies.recall.planted import lab_of
from trained.store import shipped

BY_NAME = {substitute.name: substitute for substitute in STUDY.substitutes}
IMPOSTORS = [s for s in STUDY.substitutes if s.role == "impostor"]


@pytest.fixture(scope="module")
def lab():
    return open_lab(shipped("recall"))


def judged(lab, pattern):
    claims = STUDY.claims_at(lab.config)
    return {c.id: judge(c, lab) for c in claims if pattern in c.id}


def test_there_are_planted_labs_and_impostors():
    roles = [substitute.role for substitute in STUDY.substitutes]
    assert roles.count("planted") == 1
    assert roles.count("impostor") == 3


@pytest.mark.parametrize("name", BY_NAME)
def test_every_substitute_answers_right(lab, name):
    other = BY_NAME[name].make(lab)
    for arm in substitutes.WHOLE:
        assert min(other.relative_accuracy(arm)) > 0.95
        assert min(other.answered(arm)) > 0.999


def test_the_planted_warm_up_stops_at_the_saddle_first(lab):
    planted = BY_NAME["exact optimum in W_KQ"].make(lab)
    t = lab.config.warmup.temperatures[0]
    assert max(planted.after_stage_one().warmup(t).from_saddle()) < 1e-9
    assert max(planted.warmup(t).from_optimum()) < 1e-9
    assert max(planted.warmup(t, symmetric=True).from_saddle()) < 1e-9
    heavy = [share.hits for share in planted.warmup(t).heavy_first()]
    assert 0 < sum(heavy) < len(heavy)


@pytest.mark.parametrize("impostor", IMPOSTORS, ids=lambda s: s.name)
def test_an_impostor_is_found_out_by_edits_of_the_matrix(lab, impostor):
    found = judged(impostor.make(lab), "recall.cause.")
    assert {verdict.word for verdict in found.values()} == {"refuted"}


def test_the_idle_pattern_looks_like_the_papers(lab):
    idle = BY_NAME["prompt table, idle pairwise attention"].make(lab)
    real = BY_NAME["exact optimum in W_KQ"].make(lab)
    assert idle.gap("full-random") == real.gap("full-random")


@pytest.mark.parametrize("null", ["untrained", "shuffled"])
def test_no_null_is_confirmed_to_have_the_mechanism(lab, null):
    absent = getattr(lab, null)()
    for headline in ("recall.cause.", "recall.f", "recall.step2", "recall.warmup."):
        found = judged(absent, headline).values()
        passed = [v.claim.id for v in found if v.passed and v.claim.kind != "theory"]
        assert passed == []


def test_twins_are_not_what_was_planted(lab):
    planted = BY_NAME["exact optimum in W_KQ"].make(lab)
    for null in ("shuffled", "hot"):
        found, real = getattr(planted, null)(), getattr(lab, null)()
        assert found.ratio("full-random") == real.ratio("full-random")
        assert found.ratio("full-random") != planted.ratio("full-random")


def test_what_is_planted_is_confirmed(lab):
    planted = BY_NAME["exact optimum in W_KQ"]
    for headline in ("recall.cause.", "recall.fig2a", "recall.step2.perfect.fig2"):
        found = judged(planted.make(lab), headline)
        assert {verdict.word for verdict in found.values()} == {"confirmed"}


def test_models_put_in_place_leave_the_untrained_ones(tmp_path):
    def at_saddle(table, seed):
        return substitutes._made(substitutes.RecallModel, table, seed, SADDLE)

    lab = lab_of(tmp_path, {"full-random": at_saddle})
    assert lab.rest("full-random") == pytest.approx([0] * 3, abs=1e-6)
    assert min(lab.untrained().rest("full-random")) > 0.2
