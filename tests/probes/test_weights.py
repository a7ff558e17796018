import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.weights import (
    diagonal_excess,
    diagonal_score,
    nuclear_norm,
    numerical_rank,
)

SEEDS = st.integers(0, 2**16)
quick = settings(deadline=None, max_examples=20)


def normal(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_spectra_by_hand():
    matrix = torch.diag(torch.tensor([3.0, 1.0, 0.0]))
    assert nuclear_norm(matrix).item() == pytest.approx(4)
    assert numerical_rank(matrix).item() == 2
    assert numerical_rank(matrix, relative_tolerance=0.5).item() == 1


def test_a_zero_matrix_has_no_rank():
    zero = torch.zeros(2, 3, 3)
    for signal in (nuclear_norm, numerical_rank):
        assert signal(zero).tolist() == [0, 0]


@given(SEEDS, st.integers(1, 4))
@quick
def test_spectra_are_blind_to_rotation_and_ordered(seed, rank):
    matrix = normal(seed, 5, rank) @ normal(seed + 1, rank, 6)
    turned = torch.linalg.qr(normal(seed + 2, 5, 5)).Q @ matrix
    torch.testing.assert_close(nuclear_norm(turned), nuclear_norm(matrix))
    assert numerical_rank(matrix, relative_tolerance=1e-12).item() == rank
    assert nuclear_norm(matrix) >= torch.linalg.matrix_norm(matrix) - 1e-9


def test_noise_has_nearly_full_rank():
    noise = normal(0, 40, 40)
    assert numerical_rank(noise).item() == 40
    # Of equal Frobenius norm, one direction has the least nuclear norm, noise far more.
    ratio = nuclear_norm(noise) / torch.linalg.matrix_norm(noise)
    assert ratio.item() > 5
    line = noise[:, :1] @ noise[:1]
    torch.testing.assert_close(nuclear_norm(line), torch.linalg.matrix_norm(line))


def test_diagonals_by_hand():
    block = torch.tensor([[3.0, 1.0], [-1.0, 5.0]])
    assert diagonal_excess(block).item() == 4


@given(SEEDS, st.integers(2, 6), st.floats(-5, 5))
@quick
def test_diagonal_laws(seed, size, offset):
    block = normal(seed, 3, size, size)
    excess = diagonal_excess(block)
    torch.testing.assert_close(diagonal_excess(block + offset), excess)
    identity = torch.eye(size, dtype=torch.float64)
    torch.testing.assert_close(diagonal_excess(block + 2 * identity), excess + 2)


def test_shuffled_rows_have_no_diagonal():
    block = 5 * torch.eye(200) + normal(0, 200, 200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    assert diagonal_excess(block).item() == pytest.approx(5, abs=0.3)
    assert abs(diagonal_excess(block[order]).item()) < 0.3


def test_blocks_without_a_diagonal_are_refused():
    with pytest.raises(ValueError, match="square block, got 2 x 3"):
        diagonal_excess(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="at least 2 rows"):
        diagonal_excess(torch.ones(1, 1))


def test_diagonal_score_by_hand():
    assert diagonal_score(-3 * torch.eye(5)).item() == pytest.approx(-5)
    # sqrt(2) * (1 + 2) / sqrt(1 + 4 + 4)
    matrix = torch.tensor([[1.0, 2.0], [0.0, 2.0]])
    assert diagonal_score(matrix).item() == pytest.approx(2**0.5)
    assert diagonal_score(torch.zeros(3, 3)).item() == 0
    with pytest.raises(ValueError, match="square block, got 2 x 3"):
        diagonal_score(torch.zeros(2, 3))


@given(SEEDS, st.integers(2, 6), st.floats(0.1, 5))
@quick
def test_diagonal_score_laws(seed, size, factor):
    matrix = normal(seed, size, size)
    score = diagonal_score(matrix)
    assert abs(score.item()) <= size + 1e-9
    torch.testing.assert_close(diagonal_score(factor * matrix), score)
    rotation = torch.linalg.qr(normal(seed + 1, size, size)).Q
    torch.testing.assert_close(diagonal_score(rotation @ matrix @ rotation.mT), score)


def test_random_matrices_score_like_a_standard_normal():
    scores = diagonal_score(normal(0, 2000, 16, 16))
    assert scores.mean().item() == pytest.approx(0, abs=0.1)
    assert scores.std().item() == pytest.approx(1, abs=0.1)
