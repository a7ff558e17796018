"""Kernels against closed forms, plain Monte Carlo and their symmetries."""

from math import pi

import pytest
import torch
from torch import Tensor

from trained.errors import BadInput
from trained.symbols.kernel import (
    AttentionKernel,
    CosineLift,
    Lift,
    MlpKernel,
    ReluLift,
    TransformerKernel,
    canonical_pair,
    normal_points,
    pair_patterns,
)


def strings(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


@pytest.fixture(scope="module")
def many() -> Tensor:
    """All strings of three tokens and CLS (9) over an alphabet of three."""
    words = torch.cartesian_prod(*[torch.arange(3)] * 3)
    return torch.cat([words, torch.full((len(words), 1), 9)], dim=1)


def test_without_temperature_a_value_worked_by_hand() -> None:
    # Equal pairs: token 1 twice in x and once in y, CLS once in both: 2 + 1 of 9.
    kernel = AttentionKernel(beta=0.0, gamma=0.5, n_points=16, n_private=4)
    found = kernel(strings([1, 1, 0]), strings([1, 2, 0]))
    assert float(found) == pytest.approx(3 / 9 + 0.25 / 3, abs=1e-14)


def test_without_temperature_it_counts_equal_pairs(many: Tensor) -> None:
    kernel = AttentionKernel(beta=0.0, gamma=1.5, n_points=16, n_private=4)
    equal = (many[:, None, :, None] == many[None, :, None, :]).double().sum((-2, -1))
    expected = equal / 16 + 1.5**2 / 4
    torch.testing.assert_close(kernel(many, many), expected, atol=1e-13, rtol=0)


def test_one_position_leaves_no_choice() -> None:
    kernel = AttentionKernel(beta=7.0, gamma=0.5, n_points=16, n_private=4)
    found = kernel(strings([3]), strings([3], [4]))
    expected = torch.tensor([[1.25, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_strings_with_nothing_in_common_are_orthogonal_without_positions() -> None:
    kernel = AttentionKernel(gamma=0.0, n_points=16, n_private=4)
    found = kernel(strings([1, 2, 0], [1, 1, 0]), strings([3, 4, 5]))
    torch.testing.assert_close(found, torch.zeros(2, 1, dtype=torch.float64))


def test_renaming_tokens_changes_nothing(many: Tensor) -> None:
    kernel = AttentionKernel(n_points=32, n_private=8)
    renamed = torch.tensor([5, 0, 7, 3, 3, 3, 3, 3, 3, 1])[many]
    assert torch.equal(kernel(many, many), kernel(renamed, renamed))
    merged = torch.tensor([5, 5, 7, 3, 3, 3, 3, 3, 3, 1])[many]
    assert not torch.allclose(kernel(many, many), kernel(merged, merged), atol=0.05)


def test_the_matrix_is_symmetric_and_positive(many: Tensor) -> None:
    kernel = AttentionKernel(n_points=256, n_private=32)
    matrix = kernel(many, many)
    torch.testing.assert_close(matrix, matrix.mT, atol=1e-12, rtol=0)
    assert float(torch.linalg.eigvalsh(matrix)[0]) > -0.01


@pytest.mark.parametrize(
    ("x", "y"), [([1, 2, 1, 0], [2, 3, 3, 0]), ([1, 1, 0], [2, 3, 0]), ([5, 0], [5, 0])]
)
def test_plain_monte_carlo_agrees(x: list[int], y: list[int]) -> None:
    beta, gamma, count = 3.0, 0.8, 200_000
    source = torch.Generator().manual_seed(3)
    zeta = torch.randn(count, 6, generator=source).double()
    places = torch.randn(count, len(x), generator=source).double()
    s, t = ((beta * (zeta[:, w] + gamma * places)).softmax(-1) for w in (x, y))
    equal = torch.tensor([[float(i == j) for j in y] for i in x]).double()
    draws = ((s @ (equal + gamma**2 * torch.eye(len(x)))) * t).sum(-1)
    error = float(draws.std()) / count**0.5
    found = float(AttentionKernel(beta, gamma)(strings(x), strings(y)))
    assert found == pytest.approx(float(draws.mean()), abs=5 * error)


def test_replicates_give_the_standard_error() -> None:
    x, y = strings([1, 2, 0]), strings([3, 3, 0])

    def drawn(n_points: int, n_private: int) -> Tensor:
        kernels = [
            AttentionKernel(n_points=n_points, n_private=n_private, seed=seed)
            for seed in range(20)
        ]
        return torch.stack([kernel.replicates(x, y)[:, 0, 0] for kernel in kernels])

    rough, fine = drawn(64, 16), drawn(512, 64)
    told = float((rough.var(1) / rough.shape[1]).mean().sqrt())
    assert float(rough.mean(1).std()) == pytest.approx(told, rel=0.5)
    assert float(rough.mean()) == pytest.approx(float(fine.mean()), abs=4 * told / 4)
    assert float(fine.std()) < float(rough.std()) / 2


def test_points_are_standard_gaussian_and_finite() -> None:
    points = normal_points(6, 1024, 2, seed=0)
    assert points.shape == (2, 1024, 6)
    assert bool(points.isfinite().all())
    assert float(points.mean().abs()) < 0.01
    assert float(points.std()) == pytest.approx(1, abs=0.01)


def test_pairs_share_a_pattern_exactly_if_renaming_makes_them_equal(
    many: Tensor,
) -> None:
    rows = many[::2]
    index, first, second = pair_patterns(rows, many)
    pairs = [(x, y) for x in rows.tolist() for y in many.tolist()]
    keys = []
    for x, y in pairs:
        names = {token: place for place, token in enumerate(dict.fromkeys(x + y))}
        keys.append(tuple(names[token] for token in x + y))
    by_key = dict(zip(keys, index.flatten().tolist(), strict=True))
    assert [by_key[key] for key in keys] == index.flatten().tolist()
    assert len(set(by_key.values())) == len(by_key) == len(first)
    assert torch.equal(index[first, second], torch.arange(len(first)))


def test_a_value_is_computed_once_per_pattern(many: Tensor) -> None:
    kernel = AttentionKernel(n_points=16, n_private=4)
    kernel(many, many)
    known = len(kernel._values)
    patterns = {canonical_pair(x, y) for x in many.tolist() for y in many.tolist()}
    assert known == len(patterns) < len(many) ** 2 / 4
    kernel(many + 20, many + 20)
    assert len(kernel._values) == known


def test_bad_strings_and_temperatures_are_refused() -> None:
    kernel = AttentionKernel(n_points=16, n_private=4)
    with pytest.raises(BadInput, match="strings of 2 and 3 tokens"):
        kernel(strings([1, 0]), strings([1, 2, 0]))
    with pytest.raises(BadInput, match="at most 15"):
        kernel(torch.zeros(1, 16).long(), torch.zeros(1, 16).long())
    with pytest.raises(BadInput, match=r"beta=-1\.0: from 0 to 50"):
        AttentionKernel(beta=-1.0)


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
