"""The unreduced margin program against hand values, Section 4 and its dual."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from probes.weights import numerical_rank
from trained.bridge.program import (
    Constraints,
    Optimum,
    Solution,
    Vocabulary,
    _project,
    constraints,
    duality_gap,
    margins,
    one_hop_constraints,
    one_hop_facts,
    solve,
    train_margin,
    two_hop_margins,
)


@cache
def solved(size: int, complexity: int, identity: bool) -> tuple[Constraints, Solution]:
    facts = one_hop_constraints(size, complexity, identity=identity)
    return facts, solve(facts)


def excess(block: Tensor) -> float:
    size = block.shape[0]
    diagonal = float(block.diagonal().sum())
    return diagonal / size - (float(block.sum()) - diagonal) / (size * (size - 1))


def test_facts_of_the_worked_example() -> None:
    facts = one_hop_facts(3, 2, identity=True)
    assert len(facts) == 18
    assert facts[0] == ((0, 9), 0)
    assert facts[3] == ((0, 10), 3)
    assert facts[6] == ((3, 11), 6)
    assert facts[9] == ((6, 11), 7)
    assert facts[12] == ((3,), 0)
    assert one_hop_facts(3, 2, identity=False) == facts[:12]
    assert (Vocabulary(3, 2).n_inputs, Vocabulary(3, 2).n_outputs) == (12, 9)


@pytest.mark.parametrize("complexity", [1, 2, 4])
def test_each_subject_reaches_as_many_objects_as_its_complexity(
    complexity: int,
) -> None:
    vocabulary = Vocabulary(5, complexity)
    for subject in range(5):
        found = {vocabulary.object_column(k, subject) for k in range(complexity)}
        assert len(found) == complexity


def test_no_training_input_is_a_two_hop_query() -> None:
    assert {len(tokens) for tokens, _ in one_hop_facts(6, 3, identity=True)} == {1, 2}


@pytest.mark.parametrize(("size", "complexity"), [(3, 3), (3, 0), (1, 1)])
def test_degenerate_vocabularies_are_refused(size: int, complexity: int) -> None:
    with pytest.raises(ValueError, match="complexity"):
        Vocabulary(size, complexity)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ([], "at least one"),
        ([((5,), 0)], "inputs"),
        ([((), 0)], "inputs"),
        ([((0,), 7)], "label"),
        ([((0, 1), 0), ((1, 0), 1)], "second label"),
    ],
)
def test_bad_facts_are_refused(
    facts: list[tuple[tuple[int, ...], int]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        constraints(facts, n_inputs=5, n_outputs=2)


def test_margins_by_hand() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.5], [0.0, 0.0, 4.0]])
    assert margins(logits, torch.tensor([0, 1])).tolist() == [0.5, -4.0]


def test_two_hop_margins_by_hand() -> None:
    # Rows a0 a1 b0 b1 r1 r2, columns b0 b1 c0 c1.
    matrix = torch.zeros(6, 4)
    matrix[0, 2] = 2.0
    matrix[5] = torch.tensor([0.5, 0.0, 1.0, 1.0])
    assert two_hop_margins(matrix, 2).tolist() == [2.0, 0.0]


def test_projection_is_the_nearest_feasible_point() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(6, (40,), generator=generator)
    facts = Constraints(torch.ones(40, 1, dtype=torch.float64), labels, 6)
    projected = _project(logits, facts)
    assert margins(projected, labels).amin() >= 1 - 1e-12
    torch.testing.assert_close(_project(projected, facts), projected)
    # Characterises the projection: <v - p, q - p> <= 0 for every feasible q.
    for _ in range(50):
        other = torch.randn(40, 6, generator=generator, dtype=torch.float64)
        other = _project(3 * other, facts)
        angle = ((logits - projected) * (other - projected)).sum(dim=-1)
        assert angle.amax() <= 1e-10


def test_one_fact_is_solved_by_hand() -> None:
    facts = constraints([((0,), 0)], n_inputs=1, n_outputs=2)
    solution = solve(facts)
    expected = torch.tensor([[0.5, -0.5]], dtype=torch.float64)
    torch.testing.assert_close(solution.matrix, expected, atol=1e-7, rtol=0)
    assert solution.objective == pytest.approx(0.5**0.5, abs=1e-7)


@pytest.mark.parametrize(
    ("size", "identity", "margin", "objective"),
    [
        (3, True, 0.751, None),
        (5, True, 0.732, 12.5800),
        (10, True, 0.703, 25.5827),
        (3, False, -0.750, None),
        (5, False, -0.833, 8.4082),
        (10, False, -0.909, 18.3015),
    ],
)
def test_values_of_section_4(
    size: int, identity: bool, margin: float, objective: float | None
) -> None:
    facts, solution = solved(size, 1, identity)
    found = two_hop_margins(solution.matrix, size)
    torch.testing.assert_close(found, torch.full_like(found, margin), atol=1e-3, rtol=0)
    assert solution.train_margin >= 0.999
    assert solution.train_margin == train_margin(solution.matrix, facts)
    assert numerical_rank(solution.matrix) == (size if identity else 2 * size - 1)
    if objective is not None:
        assert solution.objective == pytest.approx(objective, abs=1e-3)


@pytest.mark.parametrize(
    ("size", "complexity", "identity"),
    [(5, 1, True), (5, 1, False), (10, 1, True), (8, 2, True), (8, 2, False)],
)
def test_the_dual_certifies_the_optimum(
    size: int, complexity: int, identity: bool
) -> None:
    facts, solution = solved(size, complexity, identity)
    assert solution.multipliers.amin() >= 0
    gap = duality_gap(facts, solution)
    assert -1e-9 <= gap <= 1e-6 * solution.objective


def test_the_certificate_is_not_fooled() -> None:
    facts, solution = solved(5, 1, True)
    _, without = solved(5, 1, False)
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(solution.matrix.shape, generator=generator).double()
    worse = replace(solution, matrix=solution.matrix + 0.01 * noise, objective=0.0)
    assert duality_gap(facts, worse) > 0.01
    shuffled = replace(solution, multipliers=solution.multipliers.flip(0))
    assert duality_gap(facts, shuffled) > 0.1
    assert duality_gap(facts, replace(solution, matrix=without.matrix)) == torch.inf


def test_identity_leaves_a_tie_between_two_objects() -> None:
    _, solution = solved(8, 2, True)
    assert two_hop_margins(solution.matrix, 8, 2).abs().amax() < 1e-6
    assert solution.train_margin >= 0.999


def test_two_objects_without_identity() -> None:
    _, solution = solved(8, 2, False)
    found = two_hop_margins(solution.matrix, 8, 2)
    torch.testing.assert_close(found, torch.full_like(found, -1.257), atol=1e-3, rtol=0)
    assert solution.train_margin >= 0.999


def test_relabelling_the_tokens_relabels_the_solution() -> None:
    facts, solution = solved(5, 1, True)
    rows = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    moved = solve(replace(facts, inputs=facts.inputs[:, rows]))
    expected = solution.matrix[rows]
    torch.testing.assert_close(moved.matrix, expected, atol=1e-6, rtol=0)


def test_any_list_of_facts_is_solved() -> None:
    generator = torch.Generator().manual_seed(3)
    shared = torch.randint(8, 12, (8,), generator=generator).tolist()
    labels = torch.randint(5, (8,), generator=generator).tolist()
    pairs = zip(shared, labels, strict=True)
    listed = [((own, token), label) for own, (token, label) in enumerate(pairs)]
    facts = constraints(listed, n_inputs=12, n_outputs=5)
    solution = solve(facts)
    assert solution.train_margin >= 0.999
    assert duality_gap(facts, solution) <= 1e-6 * solution.objective


def test_an_unfactorised_model_shares_nothing() -> None:
    """Negative control: the Frobenius bias fits identity but does not compose."""
    facts, shared = solved(10, 1, True)
    control = solve(facts, norm="frobenius")
    assert control.train_margin >= 0.999
    assert -1e-9 <= duality_gap(facts, control) <= 1e-6 * control.objective
    subjects = control.matrix[:10]
    assert excess(subjects[:, :10]) > 0.5
    assert abs(excess(subjects[:, 10:])) < 1e-6
    assert two_hop_margins(control.matrix, 10).amax() < 1e-6
    assert excess(shared.matrix[:10, 10:]) > 0.5


def test_an_unfinished_solve_is_an_error() -> None:
    facts = one_hop_constraints(5, 1, identity=True)
    with pytest.raises(RuntimeError, match="after 10 iterations"):
        solve(facts, max_iterations=10)


def test_a_tilt_chooses_among_matrices_of_nearly_the_same_norm() -> None:
    facts, plain = solved(4, 1, False)
    source = torch.Generator().manual_seed(0)
    tilt = 0.01 * torch.randn(plain.matrix.shape, generator=source).double()
    tilted = solve(facts, tilt=tilt)

    def cost(solution: Solution) -> float:
        return solution.objective + float((tilt * solution.matrix).sum())

    assert tilted.train_margin > 0.999
    assert cost(tilted) < cost(plain) - 1e-6
    assert plain.objective <= tilted.objective < 1.05 * plain.objective
    same = solve(facts, tilt=0 * tilt)
    torch.testing.assert_close(same.matrix, plain.matrix)


def test_tilted_optima_keep_the_sign_of_theorem_2() -> None:
    _, solution = solved(5, 1, False)
    source = torch.Generator().manual_seed(0)
    found = Optimum(5, 1, False, solution).tilted(3, 1e-4, generator=source)
    assert found.largest_margin == pytest.approx(-5 / 6, abs=0.01)
    assert 0 <= found.loss < 1e-4
    assert Optimum(5, 1, False, solution).above_symmetric < 1e-6
