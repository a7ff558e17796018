"""The matrix N, regression on unseen symbols, random heads, the first step."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from probes.weights import numerical_rank
from trained.errors import BadInput
from trained.symbols.kernel import (
    AttentionKernel,
    CosineLift,
    Kernel,
    MlpKernel,
    TransformerKernel,
)
from trained.symbols.sampler import alphabet, sample
from trained.symbols.tasks import task
from trained.symbols.theory import (
    GROUPS,
    CopyModel,
    CopySizes,
    Estimate,
    bank_kernel,
    gradients,
    instances,
    least_eigenvalue,
    permutation_gap,
    ridge_predictions,
    rotated_share,
    samples_needed,
    template_matrix,
    template_replicates,
    transfer_rates,
    unseen_predictions,
    wide_limit,
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

    found = ridge_predictions(overlap, train, torch.tensor([[1, 0], [3, 0]]), ridge=0.5)
    expected = torch.tensor([1 / 1.5, 0.0], dtype=torch.float64)
    torch.testing.assert_close(found, expected)


def test_regression_shrinks_before_it_errs(kernel: TransformerKernel) -> None:
    train, test = splits(64)
    found = unseen_predictions(kernel, train, test, SAME, ridge=RIDGE)
    assert torch.equal(found.sign(), test.targets.double().sign())
    assert float((found - test.targets).square().mean()) > 0.2


def test_the_mlp_kernel_gives_one_answer_to_every_unseen_string() -> None:
    train, test = splits(64)
    found = unseen_predictions(MlpKernel(), train, test, SAME, ridge=RIDGE)
    assert float(found.std()) < 1e-12
    seen = ridge_predictions(MlpKernel(), train, train.tokens, ridge=RIDGE)
    assert float((seen - train.targets).square().mean()) < 0.01


def test_renaming_test_symbols_changes_no_prediction(kernel: TransformerKernel) -> None:
    train, test = splits(32)
    cls = int(test.tokens[0, -1])
    renamed = torch.where(test.tokens == cls, cls, test.tokens + 1000)
    before = unseen_predictions(kernel, train, test, SAME, ridge=RIDGE)
    after = unseen_predictions(
        kernel, train, replace(test, tokens=renamed), SAME, ridge=RIDGE
    )
    assert torch.equal(before, after)


def test_a_leak_is_flagged(kernel: TransformerKernel) -> None:
    train, test = splits(16)
    leaked = replace(test, tokens=test.tokens.clone())
    leaked.tokens[3, 0] = train.tokens[0, 0]
    symbol = int(train.tokens[0, 0])
    with pytest.raises(BadInput, match=rf"symbols \[{symbol}\] are in training and"):
        unseen_predictions(kernel, train, leaked, SAME, ridge=RIDGE)
    found = task("aX -> 1 | aa -> -1")
    source, tokens = torch.Generator().manual_seed(0), alphabet(found, 16)
    pair = [sample(tokens, s, 16, generator=source) for s in ("train", "test")]
    assert len(unseen_predictions(MlpKernel(), *pair, found, ridge=RIDGE)) == 16


def test_too_many_templates_for_permutations() -> None:
    with pytest.raises(BadInput, match="9 templates"):
        permutation_gap(MlpKernel(), task("random-9"))


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


def model(d_model: int, seed: int = 0) -> CopyModel:
    source = torch.Generator().manual_seed(seed)
    return CopyModel(CopySizes(d_model), generator=source)


def test_logits_worked_by_hand() -> None:
    sizes = CopySizes(2, n_tokens=3, n_seen=1, n_heads=1, gamma=0.5)
    small = CopyModel(sizes, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        small.W_E.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        small.position.copy_(torch.tensor([2.0, 0.0]))
        small.W_V.copy_(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]))
        small.W_O.copy_(torch.eye(2)[None])
        small.b.fill_(2.0)
    # x = e_1 + p / 2 = (1, 1); W_V W_O^T moves the first entry to the second, (0, 1);
    # with 2 x the sum is (2, 3), read by E and halved.
    found = small(torch.tensor([1]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 1.5, 2.5]]))


@pytest.mark.parametrize("group", GROUPS)
def test_the_rate_is_what_a_small_step_does(group: str) -> None:
    copier, tokens = model(32).double(), torch.arange(40)
    seen, unseen = tokens[:20], tokens[20:]

    def losses() -> tuple[float, float]:
        with torch.no_grad():
            found = [cross_entropy(copier(part), part) for part in (seen, unseen)]
        return float(found[0]), float(found[1])

    expected = transfer_rates(copier)[group]
    step, before = gradients(copier, seen)[group], losses()
    with torch.no_grad():
        getattr(copier, group).sub_(1e-4 * step)
    after = losses()
    fall = [b - a for b, a in zip(before, after, strict=True)]
    assert fall[0] > 0
    assert fall[1] / fall[0] == pytest.approx(expected, abs=0.02)


def test_wide_models_reach_the_closed_form_and_narrow_ones_do_not() -> None:
    limit = wide_limit(CopySizes(1024))
    wide, narrow = transfer_rates(model(1024)), transfer_rates(model(16))
    for group in GROUPS:
        assert wide[group] == pytest.approx(limit[group], abs=0.05)
    assert limit["W_V"] < 0 < narrow["W_V"]
    assert limit["W_O"] < 0 < narrow["W_O"]


def test_without_positions_the_unseen_loss_stands_still() -> None:
    sizes = CopySizes(64, gamma=0.0)
    assert wide_limit(sizes)["W_V"] == 0
    assert wide_limit(sizes)["b"] == 1


def test_outputs_vanish_as_the_width_grows() -> None:
    tokens = torch.arange(40)
    sizes = [float(model(d)(tokens).detach().square().mean()) for d in (64, 256)]
    assert sizes[1] < sizes[0] / 2


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(BadInput, match="n_seen=40: choose 1 to 39"):
        CopySizes(8, n_seen=40)
    with pytest.raises(BadInput, match="d_model=0"):
        CopySizes(0)


def test_a_rotation_in_place_of_the_identity_teaches_nothing() -> None:
    shares = [rotated_share(model(256, seed)) for seed in range(3)]
    assert max(map(abs, shares)) < 0.05
    copier = model(64)
    with torch.no_grad():
        copier.rotation.copy_(torch.eye(64))
    assert rotated_share(copier) == pytest.approx(1)
