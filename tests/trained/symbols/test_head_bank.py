"""A finite bank of random heads approaches the kernel, and only the right one."""

import torch
from torch import Tensor

from trained.symbols.head_bank import bank_kernel
from trained.symbols.kernel import AttentionKernel

STRINGS = torch.tensor([[1, 1, 0], [1, 2, 0], [3, 4, 0]])


def bank(
    d_model: int, seed: int = 0, *, beta: float = 2.0, n_heads: int = 400
) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return bank_kernel(STRINGS, d_model, n_heads=n_heads, beta=beta, generator=source)


def test_it_is_symmetric_and_positive() -> None:
    matrix = bank(16)
    torch.testing.assert_close(matrix, matrix.mT)
    assert float(torch.linalg.eigvalsh(matrix)[0]) > 0


def test_wider_banks_are_nearer_to_the_formula() -> None:
    formula = AttentionKernel(beta=2.0)(STRINGS, STRINGS)

    def error(d_model: int) -> float:
        found = [bank(d_model, seed) - formula for seed in range(4)]
        return float(torch.stack(found).square().mean().sqrt())

    assert error(256) < error(16) / 2
    assert error(256) < 0.15


def test_heads_of_another_temperature_do_not_approach_it() -> None:
    uniform = AttentionKernel(beta=0.0)(STRINGS, STRINGS)
    assert float((bank(256) - uniform).abs().max()) > 0.3
    assert float((bank(256, beta=0.0, n_heads=1) - uniform).abs().max()) < 0.3
