import pytest
import torch

from circuits.studies.symbols.efficiency import crossing, data_ratio, needs

INFINITE = float("inf")


def test_crossings_by_hand():
    errors = torch.tensor([1.0, 0.75, 0.25])
    assert crossing((16, 64, 256), errors, 0.5) == pytest.approx(128)
    assert crossing((16, 64, 256), errors, 0.75) == pytest.approx(64)
    assert crossing((16, 64, 256), errors, 0.1) == INFINITE
    assert crossing((16, 64, 256), errors - 0.6, 0.5) == 16


@pytest.mark.parametrize("factor", [2, 8])
def test_a_shifted_curve_has_the_ratio_of_its_shift(factor):
    sizes = (16, 64, 256)
    errors = torch.tensor([[1.0, 0.9], [0.75, 0.6], [0.25, 0.1]])
    vanilla = needs(tuple(factor * n for n in sizes), errors, 0.5)
    modified = needs(sizes, errors, 0.5)
    expected = pytest.approx([factor] * 2)
    assert data_ratio(vanilla, modified, factor * 256.0) == expected


def test_ratios_are_lower_bounds():
    assert data_ratio([INFINITE], [16.0], 1024.0) == [64.0]
    assert data_ratio([64.0], [INFINITE], 1024.0) == [0.0]
