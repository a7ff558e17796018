"""The matrix N, what it needs, and regression on unseen symbols."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from probes.weights import numerical_rank
from trained.errors import BadInput
from trained.symbols.kernel import AttentionKernel
from trained.symbols.kernel_templates import (
    Estimate,
    instances,
    inverse_condition,
    least_eigenvalue,
    permutation_gap,
    ridge_predictions,
    samples_needed,
    template_matrix,
    template_replicates,
    unseen_predictions,
)
from trained.symbols.lift import CosineLift, Kernel, MlpKernel, TransformerKernel
from trained.symbols.sampler import Strings, alphabet, sample
from trained.symbols.tasks import task

SAME = task("same_different")


@pytest.fixture(scope="module")
def kernel() -> TransformerKernel:
    return TransformerKernel(AttentionKernel(n_points=256, n_private=32))


def splits(n: int, seed: int = 0) -> tuple[Strings, Strings]:
    source, tokens = torch.Generator().manual_seed(seed), alphabet(SAME, n)
    train = sample(tokens, "train", n, generator=source)
    return train, sample(tokens, "test", 60, generator=source)


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
    assert inverse_condition(by_hand, SAME) == pytest.approx(1 / 3)
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
    assert inverse_condition(MlpKernel(), task("aX -> 1 | aa -> -1")) > 0.01


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
    assert inverse_condition(steep, SAME) > inverse_condition(kernel, SAME)
    assert samples_needed(steep, SAME) > 100 * samples_needed(kernel, SAME)


def test_ridge_regression_worked_by_hand() -> None:
    # K = I + J / 2 in units: (K + 0.5 I)^-1 y for y = (1, -1) is y / 1.5.
    train = Strings(
        torch.tensor([[1, 0], [2, 0]]),
        torch.tensor([1.0, -1.0]),
        torch.tensor([0, 1]),
    )

    def overlap(x: Tensor, y: Tensor) -> Tensor:
        return (x[:, None] == y[None]).double() @ torch.tensor([1.0, 0.5]).double()

    found = ridge_predictions(overlap, train, torch.tensor([[1, 0], [3, 0]]), ridge=0.5)
    expected = torch.tensor([1 / 1.5, 0.0], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_regression_shrinks_before_it_errs(kernel: TransformerKernel) -> None:
    train, test = splits(64)
    found = unseen_predictions(kernel, train, test, SAME)
    assert torch.equal(found.sign(), test.targets.double().sign())
    assert float((found - test.targets).square().mean()) > 0.2


def test_the_mlp_kernel_gives_one_answer_to_every_unseen_string() -> None:
    train, test = splits(64)
    found = unseen_predictions(MlpKernel(), train, test, SAME)
    assert float(found.std()) < 1e-12
    seen = ridge_predictions(MlpKernel(), train, train.tokens)
    assert float((seen - train.targets).square().mean()) < 0.01


def test_renaming_test_symbols_changes_no_prediction(kernel: TransformerKernel) -> None:
    train, test = splits(32)
    cls = int(test.tokens[0, -1])
    renamed = torch.where(test.tokens == cls, cls, test.tokens + 1000)
    before = unseen_predictions(kernel, train, test, SAME)
    after = unseen_predictions(kernel, train, test._replace(tokens=renamed), SAME)
    assert torch.equal(before, after)


def test_a_leak_is_flagged(kernel: TransformerKernel) -> None:
    train, test = splits(16)
    leaked = test._replace(tokens=test.tokens.clone())
    leaked.tokens[3, 0] = train.tokens[0, 0]
    symbol = int(train.tokens[0, 0])
    with pytest.raises(BadInput, match=rf"symbols \[{symbol}\] are in training and"):
        unseen_predictions(kernel, train, leaked, SAME)
    found = task("aX -> 1 | aa -> -1")
    source, tokens = torch.Generator().manual_seed(0), alphabet(found, 16)
    pair = [sample(tokens, s, 16, generator=source) for s in ("train", "test")]
    assert len(unseen_predictions(MlpKernel(), *pair, found)) == 16


def test_too_many_templates_for_permutations() -> None:
    with pytest.raises(BadInput, match="9 templates"):
        permutation_gap(MlpKernel(), task("random-9"))
