"""The symmetric program against Section 4 and against the unreduced solver."""

import pytest
import torch

from probes.weights import numerical_rank
from trained.bridge.program import (
    one_hop_constraints,
    solve,
    train_margin,
    two_hop_margins,
)
from trained.bridge.symmetric import Symmetric, expand, solve_symmetric

TABLE = {
    3: (0.751, -0.750),
    5: (0.732, -0.833),
    10: (0.703, -0.909),
    20: (0.673, -0.952),
    50: (0.637, -0.980),
    100: (0.614, -0.990),
    1000: (0.565, -0.999),
    10_000: (0.546, -1.00),
}


@pytest.mark.parametrize("size", TABLE)
@pytest.mark.parametrize("identity", [True, False])
def test_values_of_section_4(size: int, identity: bool) -> None:
    solution = solve_symmetric(size, identity=identity)
    expected = TABLE[size][0 if identity else 1]
    assert solution.two_hop_margin == pytest.approx(expected, abs=1e-3)
    assert solution.train_margin >= 0.999
    assert solution.gap <= 1e-10 * size


@pytest.mark.parametrize("size", [4, 100, 10_000])
def test_closed_form_without_identity(size: int) -> None:
    solution = solve_symmetric(size, identity=False)
    eye = torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(solution.diagonal, eye, atol=1e-4, rtol=0)
    level = (2 * eye - 1) / (2 * (size + 1))
    torch.testing.assert_close(solution.relations, level, atol=1e-4, rtol=0)
    other_object, own_bridge, other_bridge = solution.two_hop_margins.tolist()
    assert other_object == pytest.approx(0, abs=1e-4)
    assert own_bridge == pytest.approx(-size / (size + 1), abs=1e-4)
    assert other_bridge == pytest.approx(1 / (size + 1), abs=1e-4)


@pytest.mark.parametrize("size", [4, 100, 10_000])
def test_closed_form_with_identity(size: int) -> None:
    solution = solve_symmetric(size, identity=True)
    p = solution.two_hop_margin
    shape = torch.tensor([[1, p], [1 / p, 1]], dtype=torch.float64)
    torch.testing.assert_close(solution.diagonal, shape, atol=1e-4, rtol=0)
    second = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(solution.relations[1], second, atol=1e-4, rtol=0)
    expected = torch.tensor([p, 1.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(solution.two_hop_margins, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("size", "identity"), [(7, True), (7, False), (13, True), (13, False)]
)
def test_agrees_with_the_unreduced_solver(size: int, identity: bool) -> None:
    reduced = solve_symmetric(size, identity=identity)
    full = solve(one_hop_constraints(size, 1, identity=identity))
    assert reduced.objective == pytest.approx(full.objective, abs=1e-4)
    torch.testing.assert_close(expand(reduced), full.matrix, atol=1e-4, rtol=0)
    margins = two_hop_margins(full.matrix, size)
    assert reduced.two_hop_margin == pytest.approx(float(margins.amin()), abs=1e-4)


@pytest.mark.parametrize("identity", [True, False])
def test_expansion_keeps_norm_margins_and_rank(identity: bool) -> None:
    solution = solve_symmetric(9, identity=identity)
    matrix = expand(solution)
    norm = float(torch.linalg.svdvals(matrix).sum())
    assert solution.objective == pytest.approx(norm, abs=1e-9)
    facts = one_hop_constraints(9, 1, identity=identity)
    assert train_margin(matrix, facts) == pytest.approx(solution.train_margin)
    found = two_hop_margins(matrix, 9)
    expected = torch.full_like(found, solution.two_hop_margin)
    torch.testing.assert_close(found, expected)
    assert numerical_rank(matrix) == (9 if identity else 17)


def test_norm_formula_holds_off_the_optimum() -> None:
    generator = torch.Generator().manual_seed(0)
    blocks = torch.randn(3, 2, 2, generator=generator, dtype=torch.float64)
    point = Symmetric(6, True, *blocks, gap=0.0)
    norm = float(torch.linalg.svdvals(expand(point)).sum())
    assert point.objective == pytest.approx(norm, abs=1e-9)
    facts = one_hop_constraints(6, 1, identity=True)
    assert train_margin(expand(point), facts) == pytest.approx(point.train_margin)


def test_margin_with_identity_falls_to_its_limit() -> None:
    sizes = [10, 100, 1000, 10_000, 1_000_000]
    found = [solve_symmetric(size, identity=True).two_hop_margin for size in sizes]
    limit = (1 - 0.5**0.5) ** 0.5
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(limit, abs=1e-3)
    assert found[-1] > limit


@pytest.mark.parametrize(("size", "identity"), [(1, True), (100_000, False)])
def test_sizes_it_cannot_answer_are_refused(size: int, identity: bool) -> None:
    with pytest.raises(ValueError, match="size"):
        solve_symmetric(size, identity=identity)
