"""The law by hand, its inverse, and a model that obeys it by construction."""

import math

import pytest
import torch

from circuits.studies.lego.concentration import error
from circuits.studies.lego.dilution import diluted_error, irrelevant, longest, sharpness
from circuits.studies.lego.specimen import Specimen
from tests.lego_models import N_VARIABLES, wired


def test_irrelevant_clauses_are_counted() -> None:
    # Length 3: predicates 3, answers l + 1, minus the two targets.
    assert irrelevant(3).tolist() == [2, 3, 4]


def test_values_by_hand() -> None:
    assert diluted_error(2.0, 2) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert diluted_error(0.0, 5) == 1
    assert longest(100.0, 0.5) == 51


@pytest.mark.parametrize("length", [2, 5, 40])
@pytest.mark.parametrize("k", [0.5, 20.0, 3000.0])
def test_fitting_inverts_the_law(length: int, k: float) -> None:
    assert sharpness(diluted_error(k, length), length) == pytest.approx(k, rel=1e-6)


def test_the_ends_of_the_scale() -> None:
    assert sharpness(0.0, 5) == math.inf
    assert sharpness(1.0, 5) == 0.0
    errors = [diluted_error(50.0, length) for length in (2, 5, 20, 80)]
    assert errors == sorted(errors)


@pytest.mark.parametrize("length", [3, 9])
def test_a_wired_model_obeys_it(length: int) -> None:
    score = 2.0
    specimen = Specimen("C3", 0, wired(score=score), N_VARIABLES)
    expected = diluted_error(2 * math.exp(score), length)
    assert error(specimen, length, 20) == pytest.approx(expected, rel=1e-5)
    uneven = wired(score=score)
    with torch.no_grad():
        uneven.tables.Q43 += torch.randn(
            uneven.tables.Q43.shape, generator=torch.Generator().manual_seed(0)
        )
    other = error(Specimen("C3", 0, uneven, N_VARIABLES), length, 20)
    assert abs(other - expected) > 1e-3
