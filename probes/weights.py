"""What do the weights themselves say: how low their rank, how diagonal their blocks?

Falsified by: a spectrum, or a diagonal, no different from that of a matrix with
shuffled rows.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def nuclear_norm(matrix: Float[Tensor, "*batch row col"]) -> Float[Tensor, "*batch"]:
    """Sum of the singular values, at least 0.

    |M|_* = sum over i of sigma_i, the norm that gradient descent on a factorised model
    is biased to keep small ("Identity Bridge").
    """
    return torch.linalg.svdvals(matrix).sum(-1)


def numerical_rank(
    matrix: Float[Tensor, "*batch row col"], *, relative_tolerance: float = 1e-4
) -> Int[Tensor, "*batch"]:
    """Number of singular values that count, in [0, min(row, col)].

    #{i: sigma_i > relative_tolerance * sigma_1}; 1e-4 is the cut of the bridge study.
    """
    sizes = torch.linalg.svdvals(matrix)
    return (sizes > relative_tolerance * sizes[..., :1]).sum(-1)


def diagonal_excess(block: Float[Tensor, "*batch row col"]) -> Float[Tensor, "*batch"]:
    """Mean of the diagonal minus mean of the rest; 0 for an uninformed block.

    mean over i of B[i, i] - mean over i != j of B[i, j]. Q43 and Q44 of "Transformers
    Provably Learn Chain-of-Thought Reasoning with Length Generalization", and the
    blocks of Z of "Identity Bridge".

    >>> diagonal_excess(torch.tensor([[3.0, 1.0], [1.0, 5.0]])).item()
    3.0
    """
    size = _square_size(block)
    if size < 2:
        raise ValueError("diagonal_excess needs at least 2 rows, got 1")
    diagonal = block.diagonal(dim1=-2, dim2=-1).sum(-1)
    rest = block.sum((-2, -1)) - diagonal
    return diagonal / size - rest / (size * (size - 1))


def diagonal_score(matrix: Float[Tensor, "*batch row col"]) -> Float[Tensor, "*batch"]:
    """How close to a multiple of the identity, in [-row, row]; 0 for a zero matrix.

    z = sqrt(d) tr(M) / |M|_F: about N(0, 1) for random entries, d for cI with c > 0,
    unchanged by rotations. The diagonals of Figure 7 of "When can transformers reason
    with abstract symbols?", as one number.

    >>> diagonal_score(2 * torch.eye(4)).item()
    4.0
    """
    size = _square_size(matrix)
    norm = torch.linalg.matrix_norm(matrix)
    trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return torch.where(norm > 0, size**0.5 * trace / norm, 0.0)


def _square_size(block: Float[Tensor, "*batch row col"]) -> int:
    n_rows, n_columns = block.shape[-2:]
    if n_rows != n_columns:
        raise ValueError(f"a diagonal needs a square block, got {n_rows} x {n_columns}")
    return int(n_rows)
