"""The matrix N, regression on unseen symbols, random heads."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from probes.weights import numerical_rank
from trained.errors import BadInput
from trained.symbols.kernel import (
    AttentionKernel,
    CosineLift,
    ForeignKernel,
    Kernel,
    MlpKernel,
    TransformerKernel,
)
from trained.symbols.sampler import alphabet, sample
from trained.symbols.tasks import task
from trained.symbols.theory import (
    Estimate,
    Regression,
    bank_kernel,
    instances,
    least_eigenvalue,
    permutation_gap,
    samples_needed,
    template_matrix,
    template_replicates,
    unseen_regression,
)
from trained.task import Batch

SAME = task("same_different")
RIDGE = 1e-3


@pytest.fixture(scope="module")
def kernel() -> TransformerKernel:
    return TransformerKernel(AttentionKernel(n_points=256, n_private=32))


def splits(n: int, seed: int = 0) -> tuple[Batch, Batch]:
    source, tokens = torch.Generator().manual_seed(seed), alphabet(SAME, n)
    train = sample(tokens, "train", n, generator=source)
    return train, sample(tokens, "test", 60, generator=source)


def predictions(kernel: Kernel, train: Batch, test: Batch) -> Tensor:
    fit = unseen_regression(kernel, train, test, SAME, ridge=RIDGE)
    return fit.predictions(train.targets)


def fixed(between: list[list[float]], own: list[float]) -> Kernel:
    """A kernel on two strings: one matrix for disjoint symbols, one diagonal."""

    def values(x: Tensor, y: Tensor) -> Tensor:
        matrix = torch.tensor(between, dtype=torch.float64)
        same = torch.equal(x, y)
        return torch.diag(torch.tensor(own).double()) if same else matrix

    return values


def test_instances_have_no_symbol_in_common() -> None:
    found = task("aXb -> 1 | aXa -> -1")
    first, second = (instances(found, copy=copy) for copy in (0, 1))
    assert first.tolist() == [[2, 1, 3, 0], [2, 1, 2, 0]]
    assert second.tolist() == [[4, 1, 5, 0], [4, 1, 4, 0]]


def test_needs_worked_by_hand() -> None:
    # N has eigenvalues 3 and 1; K(x, x) - N[i, i] is 3 and 1, so n0 = 2 * 2 / 1.
    by_hand = fixed([[2.0, 1.0], [1.0, 2.0]], own=[5.0, 3.0])
    assert least_eigenvalue(by_hand, SAME).value == pytest.approx(1)
    assert samples_needed(by_hand, SAME) == pytest.approx(4)
    assert permutation_gap(by_hand, SAME).value == pytest.approx(2)
    singular = fixed([[1.0, 1.0], [1.0, 1.0]], own=[2.0, 2.0])
    assert samples_needed(singular, SAME) == float("inf")
    assert permutation_gap(singular, SAME).in_errors == 0


def test_an_exact_zero_is_not_many_errors_away() -> None:
    assert Estimate(1e-15, 0.0).in_errors < 1
    assert Estimate(0.2, 0.01).in_errors == pytest.approx(20)


@pytest.mark.parametrize("name", ["same_different", "aba_abb", "majority-4"])
def test_the_mlp_kernel_has_rank_one_on_wildcards(name: str) -> None:
    matrix = template_matrix(MlpKernel(), task(name))
    assert int(numerical_rank(matrix, relative_tolerance=1e-12)) == 1
    assert samples_needed(MlpKernel(), task(name)) > 1e12
    incidence = template_matrix(MlpKernel("incidence"), task(name))
    size = len(matrix)
    assert int(numerical_rank(incidence, relative_tolerance=1e-6)) == size


def test_a_regular_token_hides_the_mlp_kernels_failure() -> None:
    assert least_eigenvalue(MlpKernel(), task("aX -> 1 | aa -> -1")).value > 0.01


@pytest.mark.parametrize("name", ["same_different", "aba_abb", "majority-4"])
def test_the_transformer_kernel_is_nonsingular(
    kernel: TransformerKernel, name: str
) -> None:
    assert least_eigenvalue(kernel, task(name)).in_errors > 10
    assert permutation_gap(kernel.attention, task(name)).in_errors > 10
    each = torch.linalg.eigvalsh(template_replicates(kernel, task(name)))
    assert float(each.min()) > -1e-4


def test_independent_points_per_entry_would_hide_the_least_eigenvalue(
    kernel: TransformerKernel,
) -> None:
    found = task("majority-4")
    own = template_replicates(kernel, found)
    mixed = torch.zeros_like(own[0])
    for i in range(8):
        for j in range(i + 1):
            mixed[i, j] = mixed[j, i] = own[(3 * i + 5 * j) % 8, i, j]
    shared = torch.linalg.eigvalsh(own.mean(0))[0]
    assert float(shared) > 1e-4
    assert float(torch.linalg.eigvalsh(mixed)[0]) < 0


def test_a_good_condition_number_is_not_enough(kernel: TransformerKernel) -> None:
    steep = replace(kernel, lift=CosineLift(frequency=4.0))

    def condition(of: TransformerKernel) -> float:
        sizes = torch.linalg.eigvalsh(template_matrix(of, SAME))
        return float(sizes[0] / sizes[-1])

    assert condition(steep) > condition(kernel)
    assert samples_needed(steep, SAME) > 100 * samples_needed(kernel, SAME)


def test_ridge_regression_worked_by_hand() -> None:
    # K = I + J / 2 in units: (K + 0.5 I)^-1 y for y = (1, -1) is y / 1.5.
    train = Batch(
        torch.tensor([[1, 0], [2, 0]]),
        torch.tensor([1.0, -1.0]),
    )

    def overlap(x: Tensor, y: Tensor) -> Tensor:
        return (x[:, None] == y[None]).double() @ torch.tensor([1.0, 0.5]).double()

    gram = overlap(train.tokens, train.tokens) + 0.5 * torch.eye(2).double()
    found = Regression(gram, overlap(torch.tensor([[1, 0], [3, 0]]), train.tokens))
    found = found.predictions(train.targets)
    expected = torch.tensor([1 / 1.5, 0.0], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_regression_shrinks_before_it_errs(kernel: TransformerKernel) -> None:
    train, test = splits(64)
    found = predictions(kernel, train, test)
    assert torch.equal(found.sign(), test.targets.double().sign())
    assert float((found - test.targets).square().mean()) > 0.2


def test_the_mlp_kernel_gives_one_answer_to_every_unseen_string() -> None:
    train, test = splits(64)
    found = predictions(MlpKernel(), train, test)
    assert float(found.std()) < 1e-12


def test_renaming_test_symbols_changes_no_prediction(kernel: TransformerKernel) -> None:
    train, test = splits(32)
    cls = int(test.tokens[0, -1])
    renamed = torch.where(test.tokens == cls, cls, test.tokens + 1000)
    before = predictions(kernel, train, test)
    after = predictions(kernel, train, replace(test, tokens=renamed))
    assert torch.equal(before, after)


def test_a_leak_is_flagged(kernel: TransformerKernel) -> None:
    train, test = splits(16)
    leaked = replace(test, tokens=test.tokens.clone())
    leaked.tokens[3, 0] = train.tokens[0, 0]
    symbol = int(train.tokens[0, 0])
    with pytest.raises(BadInput, match=rf"symbols \[{symbol}\] are in training and"):
        predictions(kernel, train, leaked)
    found = task("aX -> 1 | aa -> -1")
    source, tokens = torch.Generator().manual_seed(0), alphabet(found, 16)
    pair = [sample(tokens, s, 16, generator=source) for s in ("train", "test")]
    assert len(unseen_regression(MlpKernel(), *pair, found, ridge=RIDGE).between) == 16


def test_the_nearest_string_answers_with_its_own_label() -> None:
    between = torch.tensor([[0.1, 0.9], [0.8, 0.2]]).double()
    fit = Regression(torch.eye(2).double(), between)
    assert fit.nearest(torch.tensor([3.0, -4.0])).tolist() == [-4, 3]


def test_more_templates_than_can_be_listed_are_assigned() -> None:
    # The best assignment that moves something, found for 9 templates and, on the same
    # matrix, by listing all permutations of its first 8.
    values = torch.rand(9, 9, generator=torch.Generator().manual_seed(0)).double()
    values = values + 2 * torch.eye(9).double()

    def between(x: Tensor, y: Tensor) -> Tensor:
        del y
        return values[: len(x), : len(x)]

    nine, eight = task("random-9"), task("random-8")
    assert permutation_gap(between, nine).value <= permutation_gap(between, eight).value
    swap = min(
        float(values[i, i] + values[j, j] - values[i, j] - values[j, i])
        for i in range(9)
        for j in range(i)
    )
    assert 0 < permutation_gap(between, nine).value <= swap + 1e-12


def test_regular_tokens_leave_the_transformer_kernel_nonsingular(
    kernel: TransformerKernel,
) -> None:
    for seed in range(3):
        for name in ("random-5-5-2-1", "random-5-5-2-2"):
            assert least_eigenvalue(kernel, task(name, seed)).in_errors > 5
            assert permutation_gap(kernel.attention, task(name, seed)).in_errors > 5


def test_the_incidence_matrix_of_another_string_tells_nothing() -> None:
    strings = instances(SAME)
    assert least_eigenvalue(MlpKernel("incidence"), SAME).value > 0.1
    assert abs(least_eigenvalue(ForeignKernel(strings), SAME).value) < 1e-12


STRINGS = torch.tensor([[1, 1, 0], [1, 2, 0], [3, 4, 0]])


def bank(
    d_model: int, seed: int = 0, *, beta: float = 2.0, n_heads: int = 400
) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return bank_kernel(
        STRINGS, d_model, n_heads=n_heads, beta=beta, gamma=1.0, generator=source
    )


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
