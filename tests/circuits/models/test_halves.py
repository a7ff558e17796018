"""Linear maps of float16, computed in float32."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from circuits.models.halves import FEW, Halves


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, FEW, FEW + 1, 50])
def test_maps_are_the_exact_ones_rounded(bias: bool, rows: int) -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(96, 64, bias=bias).half(), torch.randn(rows, 96).half()
    bias64 = layer.bias.double() if bias else None
    expected = functional.linear(inputs.double(), layer.weight.double(), bias64)
    with Halves(), torch.no_grad():
        found = layer(inputs)
    assert found.dtype == torch.float16
    error = (found.double() - expected).abs().max() / expected.abs().max()
    assert error < 1e-3


def test_other_types_are_left_alone() -> None:
    layer, inputs = nn.Linear(96, 64), torch.randn(50, 96)
    with Halves():
        found = layer(inputs)
    assert torch.equal(found, layer(inputs))


def test_many_positions_are_computed_in_float32() -> None:
    layer, inputs = nn.Linear(96, 64).half(), torch.randn(50, 96).half()
    exact = functional.linear(*(t.float() for t in (inputs, *layer.parameters())))
    with Halves(), torch.no_grad():
        assert torch.equal(layer(inputs), exact.half())
