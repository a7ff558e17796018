"""How quantities scale with d: by hand, on planted circuits, at a tiny size."""

import pytest

from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.grid import log_slope
from circuits.studies.lego.lab.models import Specimen, shuffled_columns
from circuits.studies.lego.law import longest
from tests.lego_theory_models import planted
from trained.lego.theory_arms import Course, grid


def test_slopes_by_hand() -> None:
    assert log_slope([10, 20, 40], [3.0, 6.0, 12.0]) == pytest.approx(1)
    assert log_slope([10, 40], [4.0, 2.0]) == pytest.approx(-0.5)
    assert log_slope([24, 36, 54], [3.7, 3.7, 3.7]) == 0
    assert log_slope([10, 40], [4.0, 0.0]) != log_slope([10, 40], [4.0, 0.0])


def test_sizes_follow_from_d(lab: LegoLab) -> None:
    course = Course(lab.config, "S3", 30)
    assert course.n_variables == 30 - 6 - 3 - 1
    assert course.words.size == 30
    assert grid(lab.config, "S3") == (24, 30, 36)
    # Rounds until L >= |X| / 2.
    assert course.rounds == (4, 8, 16)
    assert Course(lab.config, "C3", 30).rounds == ()
    assert course.name == "theory-S3-d30"


def test_length_is_extrapolated_from_k_and_the_tolerance(lab: LegoLab) -> None:
    specimen = Specimen("C3", 0, planted("C3", 24, 3.0))
    tolerated = lab.tolerance(specimen)
    assert 0.2 < tolerated < 0.9
    k = lab.sharpness([specimen])[0]
    assert lab._reach(specimen) == pytest.approx(longest(k, tolerated))
    sharper = Specimen("C3", 0, planted("C3", 24, 4.0))
    assert lab._reach(sharper) > lab._reach(specimen)


def test_diagonals_and_what_a_shuffle_leaves(lab: LegoLab) -> None:
    specimen = Specimen("C3", 0, planted("C3", 24, 3.0))
    assert lab._diagonal(specimen) == pytest.approx(3)
    assert lab._rest(specimen) == 0
    shuffled = shuffled_columns(specimen)
    assert lab._diagonal(shuffled) < 1
    assert lab._rest(shuffled) > 0.1


def test_copying_weights(lab: LegoLab) -> None:
    model = planted("C3", 24, 3.0)
    specimen = Specimen("C3", 0, model)
    clip = 4 * model.block.value.clip * (1 + 1 / model.block.value.clip)
    assert lab._copy(specimen) == pytest.approx(clip, rel=1e-4)


def test_what_else_the_copying_neurons_learn(lab: LegoLab) -> None:
    model = Course(lab.config, "C3", 30).build(1).requires_grad_(False)
    specimen, neurons = Specimen("C3", 1, model), model.block.variable
    unit = 30**-0.5
    neurons.W1.diagonal(dim1=0, dim2=1).add_(5)  # what copies is no other weight
    assert (lab._names(specimen), lab._others(specimen)) == (0, 0)
    neurons.W1[0, 1, 0] += 2 * unit
    neurons.W2[1, 3, 1] -= 3 * unit
    assert lab._names(specimen) == pytest.approx(2, rel=1e-4)
    assert lab._others(specimen) == pytest.approx(3, rel=1e-4)


def test_quantities_of_the_tiny_grid(lab: LegoLab) -> None:
    assert len(lab.slope("C3", "reach")) == 2
    rule, loose, half = (
        x.at("C3", 30)[0].tables for x in (lab, lab.loose(), lab.halved())
    )
    assert not rule.equal(loose)
    assert not rule.equal(half)
    blind = lab.blind().by_d("C3", 30, "eps")
    assert blind == pytest.approx([1 - (2 / 3 + 2 / 4) / 2] * 2, abs=1e-6)
    assert lab.blind().slope("C3", "eps") == pytest.approx([0, 0], abs=1e-6)
    assert len(lab.unpaired_grid("C3", "sharpness", "mean")) == 1
    assert len(lab.ratio_slope("S3", "C3", "reach")) == 2
    assert lab.unpaired_grid("C3", "sharpness", "slope") != [0]
    assert all(0 <= v <= 1 for v in lab.everywhere("S3"))
    assert all(0 <= v <= 1 for v in lab.foretold("C3"))
