"""The theory's quantities: on planted circuits, and at a tiny size."""

import math

import pytest
import torch

from circuits.claims import NotTested
from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.features import (
    composites,
    features,
    greedy_order,
    strongest_share,
)
from circuits.studies.lego.lab.models import Specimen, uniform
from circuits.studies.lego.law import irrelevant, sharpness
from tests.lego_theory_models import planted
from trained.lego.action import action
from trained.lego.config import Theory
from trained.lego.task import Vocabulary
from trained.lego.theory import TheoryModel

N_VARIABLES = 24


def specimen(score: float, text: str = "C4") -> Specimen:
    return Specimen(text, 0, planted(text, N_VARIABLES, score))


def test_uniform_attention_misses_what_it_must() -> None:
    blind = uniform(specimen(8.0))
    batch = blind.sentences(2, 100)
    assert blind.error(batch) == pytest.approx(1 - (2 / 3 + 2 / 4) / 2, abs=1e-6)
    assert blind.gap(batch) == pytest.approx(0, abs=1e-6)


def test_sharpness_of_planted_diagonals() -> None:
    model = specimen(3.0)
    error = model.error(model.sentences(5, 100))
    found = sharpness(error, irrelevant(5))
    assert found == pytest.approx(2 * math.exp(3), rel=1e-3)


def test_a_planted_circuit_solves_and_without_q_it_does_not(lab: LegoLab) -> None:
    model = specimen(8.0)
    assert lab.solves([model, uniform(model)], 12) == [1, 0]


def test_planted_features() -> None:
    model = planted("C4", N_VARIABLES, 0.0)
    scale = 1 + 1 / model.block.value.clip
    found = features(model, action("C4"))
    assert found.halves == pytest.approx((scale, scale, -scale, -scale))
    assert found.ratio == pytest.approx(1)
    assert found.mixed == pytest.approx(0, abs=1e-6)
    assert found.uneven == pytest.approx(0, abs=1e-6)
    assert found.composite == pytest.approx(scale)
    assert found.wrong == pytest.approx(-scale)
    # Idle neurons still respond to the fixed bias, a little.
    assert strongest_share(model, action("C4")) > 0.99


def test_features_that_are_absent() -> None:
    model = planted("C4", N_VARIABLES, 0.0)
    assert features(model, action("C4"), shift=1).composite < 0.5
    words = Vocabulary.of(action("C4"), N_VARIABLES)
    fresh = TheoryModel(words, Theory(), generator=torch.Generator().manual_seed(0))
    assert features(fresh, action("C4")).composite < 0.25
    assert features(fresh, action("C4")).uneven > 0.2
    assert strongest_share(fresh, action("C4")) < 0.9


def test_no_two_values_share_a_neuron() -> None:
    """It failed when every value took the neuron that responds most to it."""
    model = planted("C3", N_VARIABLES, 0.0)
    with torch.no_grad():
        # One neuron responds more than its own to every value, and to all alike.
        model.block.value.W5[:, :, 3] = 40.0
        model.block.value.W2[:, :, 3] = 40.0
    found = features(model, action("C3"))
    clip = model.block.value.clip
    everywhere = (found.value * clip - 40).abs().amax(-1) < 1e-4
    assert everywhere.sum(1).tolist() == [1, 1, 1]


def test_the_greedy_order_by_hand() -> None:
    model, act = planted("C3", N_VARIABLES, 0.0), action("C3")
    order = list(greedy_order(model, act))
    # One neuron for each pair; none twice.
    assert len(order) == len({(j, y) for j, y, _ in order}) == 9
    assert len({(j, r) for j, _, r in order}) == 9
    with torch.no_grad():
        model.block.value.W5[2, 1, 7] = 99.0
    # In C3 the g that sends 2 to 1 is 2.
    assert next(greedy_order(model, act)) == (1, 2, 7)
    assert composites(model, act).shape[:2] == (3, 3)


def test_stages_leave_what_their_names_say(lab: LegoLab) -> None:
    trained, second, longer, last = (
        lab.theory("S3", stage)[0].model
        for stage in ("attention", "second-step", "longer", "round-4")
    )
    assert trained.tables.Q43.any()
    assert second.tables.Q43.any()
    assert not torch.equal(second.tables.Q43, trained.tables.Q43)
    # The control's annotator is where it started, and the rounds start there again.
    assert torch.equal(longer.annotator.Q43, second.tables.Q43)
    assert torch.equal(last.annotator.Q43, second.tables.Q43)
    assert torch.equal(last.block.value.W2, second.block.value.W2)


def test_nulls_lack_what_they_say(lab: LegoLab) -> None:
    blind = lab.blind().theory("S3", "second-step")[0].model
    own = lab.theory("S3", "second-step")[0].model
    assert not blind.tables.Q43.any()
    assert torch.equal(blind.block.value.W2, own.block.value.W2)
    fresh = lab.untrained().theory("S3", "second-step")[0].model
    assert not torch.equal(fresh.block.value.W2, own.block.value.W2)
    assert lab.untrained().early_lead("C3") == [0, 0]
    assert not lab.second_only().lead("C3").equal(lab.lead("C3"))
    for kind in ("initial", "shuffled"):
        swapped = lab.with_features_of(kind).theory("S3", "second-step")[0].model
        assert torch.equal(swapped.tables.Q43, own.tables.Q43)
        assert not torch.equal(swapped.block.value.W2, own.block.value.W2)
    twin = lab.shuffled().theory("S3", "second-step")[0].model
    assert not torch.equal(twin.block.value.W2, own.block.value.W2)
    with pytest.raises(NotTested, match="this run has no arm C3-shuffled"):
        lab.shuffled().folded("C3")
    assert len(lab.shuffled().longer_growth("S3", "round-4")) == 2


def test_paths_over_training(lab: LegoLab) -> None:
    first = lab.mean_sharpness("C3", "attention")
    assert first.shape[0] == 2
    torch.testing.assert_close(first[:, 0], torch.full((2,), 2.0))
    assert all(
        early <= lead
        for early, lead in zip(
            lab.early_lead("C3"), lab.lead("C3").amax(1).tolist(), strict=True
        )
    )
    assert len(lab.longer_growth("S3", "round-4")) == 2


def test_the_worst_step_is_what_counts(lab: LegoLab) -> None:
    """It failed when the mean over steps was taken."""
    model = specimen(3.0)
    mass = lab._worst_mass(model, 8)
    last = 14 / (14 + 2 * math.exp(3.0))
    assert mass == pytest.approx(1 - last, rel=1e-3)
    assert mass < 1 - model.error(model.sentences(8, 20))


def test_variants_of_algorithm_2(lab: LegoLab) -> None:
    course = lab.course("S3", kind="blind")
    blind = lab.last_stage(course)[0].model
    assert not blind.annotator.Q43.any()
    halved = lab.last_stage(lab.course("S3", kind="halved"))[0].model
    assert halved.annotator.Q43.any()
    assert lab.course("S3", clip=lab.config.theory.clip).is_main
    assert lab.course("S3", clip=4.0).name == "theory-S3-clip4"
    assert 0 < min(lab.worst_mass("S3", 4.0)) < 1
