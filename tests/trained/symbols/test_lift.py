"""Lifted kernels against Monte Carlo, closed forms and each other."""

from math import pi

import pytest
import torch
from torch import Tensor

from trained.symbols.kernel import AttentionKernel
from trained.symbols.lift import (
    CosineLift,
    Lift,
    MlpKernel,
    ReluLift,
    TransformerKernel,
)

SAME, DIFFERENT = torch.tensor([[1, 1, 0]]), torch.tensor([[1, 2, 0]])
OTHER_SAME, OTHER_DIFFERENT = SAME + torch.tensor([4, 4, 0]), torch.tensor([[5, 6, 0]])


def value(number: float) -> Tensor:
    return torch.tensor([[number]], dtype=torch.float64)


@pytest.mark.parametrize(
    "lift", [CosineLift(1.0, 0.3), CosineLift(2.0, 1.0), ReluLift()]
)
def test_the_closed_form_is_the_gaussian_expectation(lift: Lift) -> None:
    kxx, kyy, kxy = 1.3, 0.7, -0.4
    source = torch.Generator().manual_seed(0)
    normal = torch.randn(400_000, 2, generator=source).double()
    factor = torch.linalg.cholesky(torch.tensor([[kxx, kxy], [kxy, kyy]]).double())
    p, q = (normal @ factor.mT).T
    if isinstance(lift, CosineLift):
        activated = [(lift.frequency * t + lift.shift).cos() for t in (p, q)]
    else:
        activated = [t.relu() for t in (p, q)]
    draws = activated[0] * activated[1]
    error = float(draws.std()) / len(draws) ** 0.5
    found = float(lift(value(kxy), value(kxx), value(kyy)))
    assert found == pytest.approx(float(draws.mean()), abs=5 * error)


def test_relu_values_worked_by_hand() -> None:
    one = value(1.0)
    assert float(ReluLift()(one, one, one)) == pytest.approx(1 / 2)
    assert float(ReluLift()(value(0.0), one, one)) == pytest.approx(1 / (2 * pi))
    assert float(ReluLift()(-one, one, one)) == pytest.approx(0, abs=1e-12)


def test_a_constant_cosine_is_constant() -> None:
    lift = CosineLift(frequency=0.0, shift=0.3)
    expected = torch.tensor(0.3).double().cos() ** 2
    found = lift(value(0.2), value(1.0), value(2.0))
    assert float(found) == pytest.approx(float(expected), abs=1e-7)


def test_the_mlp_sees_equal_positions_only() -> None:
    # Disjoint symbols: CLS is the one position in common of three.
    kernel = MlpKernel()
    expected = float(ReluLift()(value(1.0), value(3.0), value(3.0)))
    for x in (SAME, DIFFERENT):
        for y in (OTHER_SAME, OTHER_DIFFERENT):
            assert float(kernel(x, y)) == pytest.approx(expected)
    assert float(kernel(SAME, DIFFERENT)) > expected


def test_the_incidence_matrix_tells_templates_apart() -> None:
    # <X X^T, Y Y^T>: 5 for same and same, 3 for different and different, 3 mixed.
    lift, kernel = ReluLift(), MlpKernel("incidence")
    same = float(lift(value(1.0 + 5), value(3.0 + 5), value(3.0 + 5)))
    mixed = float(lift(value(1.0 + 3), value(3.0 + 5), value(3.0 + 3)))
    assert float(kernel(SAME, OTHER_SAME)) == pytest.approx(same)
    assert float(kernel(SAME, OTHER_DIFFERENT)) == pytest.approx(mixed)
    constant = MlpKernel("constant")
    found = [float(constant(SAME, y)) for y in (OTHER_SAME, OTHER_DIFFERENT)]
    assert found[0] == found[1]


def test_the_transformer_kernel_lifts_the_attention_kernel() -> None:
    attention = AttentionKernel(n_points=64, n_private=16)
    kernel = TransformerKernel(attention, CosineLift())
    x = torch.cat([SAME, DIFFERENT])
    y = torch.cat([OTHER_SAME, OTHER_DIFFERENT, SAME])
    kxx, kyy = attention(x, x).diagonal(), attention(y, y).diagonal()
    expected = CosineLift()(attention(x, y), kxx[:, None], kyy[None])
    torch.testing.assert_close(kernel(x, y), expected)
    each = kernel.replicates(x, y)
    assert each.shape == (8, 2, 3)
    torch.testing.assert_close(each.mean(0), expected, atol=0.01, rtol=0)
