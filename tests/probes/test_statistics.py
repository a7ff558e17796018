import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator, default_rng
from scipy import stats

from probes.statistics import (
    bootstrap_interval,
    clopper_pearson,
    holm,
    median_interval,
    standard_error,
    student_interval,
    student_p_value,
    tie_split_accuracy,
    tie_split_credit,
)

VALUES = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=6)
SEEDS = st.integers(0, 2**16)
quick = settings(deadline=None, max_examples=25)


def normal(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_bootstrap_interval_by_hand():
    assert bootstrap_interval(torch.tensor([0.25])) == (0.25, 0.25)
    # Of two values the mean is 0, 1/2 or 1, with 1/4 at either end.
    assert bootstrap_interval(torch.tensor([0.0, 1.0])) == (0, 1)
    assert bootstrap_interval(torch.tensor([0.0, 1.0]), level=0.2) == (0.5, 0.5)


@given(VALUES, SEEDS)
@quick
def test_bootstrap_interval_holds_the_range_and_repeats(numbers, seed):
    values = torch.tensor(numbers, dtype=torch.float64)
    low, high = bootstrap_interval(values, n_resamples=200, seed=seed)
    slack = 1e-9
    assert values.min() - slack <= low <= high <= values.max() + slack
    generator = torch.Generator().manual_seed(seed)
    again = bootstrap_interval(values, n_resamples=200, generator=generator)
    assert again == (low, high)


def test_bootstrap_interval_covers_the_mean_as_often_as_it_says():
    hits = 0
    for seed in range(200):
        low, high = bootstrap_interval(normal(seed, 40), n_resamples=300)
        hits += low <= 0 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_bootstrap_interval_in_chunks_is_still_an_interval():
    low, high = bootstrap_interval(normal(0, 300_000), n_resamples=10)
    assert low < high < 0.02
    with pytest.raises(ValueError, match="at least one"):
        bootstrap_interval(torch.zeros(0))
    with pytest.raises(ValueError, match="level 95"):
        bootstrap_interval(torch.zeros(2), level=95.0)


def test_standard_error_by_hand():
    assert standard_error(torch.tensor([1.0, 3.0])) == pytest.approx(1)
    assert math.isnan(standard_error(torch.tensor([1.0])))


@given(VALUES, st.floats(0, 10))
@quick
def test_standard_error_scales(numbers, scale):
    values = torch.tensor([*numbers, 0.0], dtype=torch.float64)
    expected = scale * standard_error(values)
    assert standard_error(scale * values + 1) == pytest.approx(expected, abs=1e-9)


def test_standard_error_of_a_constant_is_zero():
    assert standard_error(torch.full((5,), 0.25)) == 0


def test_tie_split_accuracy_by_hand():
    logits = torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    targets = torch.tensor([0, 1, 2])
    assert tie_split_credit(logits, targets).tolist() == [0.5, 1, 0]
    assert tie_split_accuracy(logits, targets) == 0.5
    assert tie_split_accuracy(logits, targets, tolerance=1.0) == pytest.approx(5 / 18)


@given(SEEDS)
@quick
def test_tie_split_accuracy_is_argmax_without_ties_and_credits_sum_to_one(seed):
    logits = normal(seed, 6, 4)
    targets = torch.randint(4, (6,), generator=torch.Generator().manual_seed(seed))
    plain = (logits.argmax(-1) == targets).double().mean().item()
    assert tie_split_accuracy(logits, targets, tolerance=0.0) == pytest.approx(plain)
    every = torch.arange(4).expand(6, 4)
    repeated = logits[:, None].expand(6, 4, 4)
    total = tie_split_credit(repeated, every, tolerance=0.5).sum(-1)
    torch.testing.assert_close(total, torch.ones(6, dtype=torch.float64))


def test_blind_logits_score_chance_despite_round_off():
    logits = 1e-6 * normal(0, 50, 8)
    targets = torch.zeros(50, dtype=torch.long)
    assert tie_split_accuracy(logits, targets) == pytest.approx(1 / 8)
    broken = torch.full((2, 3), math.nan)
    assert math.isnan(tie_split_accuracy(broken, torch.tensor([0, 1])))
    with pytest.raises(ValueError, match="from 0 to 8; valid: 0 to 7"):
        tie_split_accuracy(logits[:2], torch.tensor([0, 8]))


# Student, Clopper-Pearson, the median, Holm.


def test_student_interval_worked_by_hand_and_against_scipy() -> None:
    values = [1.0, 2.0, 3.0]
    low, high = student_interval(values)
    assert (low, high) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-5)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high))
    assert all(math.isnan(end) for end in student_interval([1.0]))
    assert all(math.isnan(end) for end in student_interval([1.0, math.nan]))


def test_student_interval_moves_and_scales_with_the_values() -> None:
    low, high = student_interval([1.0, 2.0, 4.0])
    moved = student_interval([3 * 1.0 + 5, 3 * 2.0 + 5, 3 * 4.0 + 5])
    assert moved == pytest.approx((3 * low + 5, 3 * high + 5))


@pytest.mark.parametrize(("hits", "of"), [(0, 7), (1, 7), (7, 7), (880, 1000)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_clopper_pearson_is_scipys(hits: int, of: int, level: float) -> None:
    exact = stats.binomtest(hits, of).proportion_ci(level, method="exact")
    found = clopper_pearson(hits, of, level=level)
    assert found == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_clopper_pearson_at_the_documented_sizes() -> None:
    for n, share in ((72, 0.95), (368, 0.99), (3688, 0.999)):
        assert clopper_pearson(n, n)[0] >= share
        assert clopper_pearson(n - 1, n - 1)[0] < share
    assert clopper_pearson(0, 10)[0] == 0.0
    low, high = clopper_pearson(3, 10)
    mirrored = clopper_pearson(7, 10)
    assert (low, high) == pytest.approx((1 - mirrored[1], 1 - mirrored[0]))
    with pytest.raises(ValueError, match="11 hits of 10"):
        clopper_pearson(11, 10)


def test_the_p_value_is_that_of_scipy() -> None:
    values = [0.3, 0.1, 0.5, 0.2]
    for above, alternative in ((True, "greater"), (False, "less")):
        expected = stats.ttest_1samp(values, 0.15, alternative=alternative).pvalue
        assert student_p_value(values, 0.15, above=above) == pytest.approx(expected)
    assert student_p_value([1.0], 0.0, above=True) == 1.0
    assert student_p_value([1.0, 1.0], 0.0, above=True) == 0.0
    assert student_p_value([1.0, 1.0], 2.0, above=True) == 1.0


def test_holm_is_monotone_bounded_and_alone_changes_nothing() -> None:
    assert holm([0.04]) == [0.04]
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_the_median_interval_needs_six_values() -> None:
    assert median_interval([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]) == (1.0, 6.0)
    assert all(math.isnan(end) for end in median_interval([1.0] * 5))
    low, high = median_interval([float(i) for i in range(1, 21)])
    # P(Binomial(20, 1/2) < 6) = 0.0207: x_(6) and x_(15).
    assert (low, high) == (6.0, 15.0)


def covered(
    draw: Callable[[Generator, int], list[float]], mean: float, n: int
) -> float:
    source = default_rng(n)
    ends = [student_interval(draw(source, n)) for _ in range(2000)]
    return sum(low <= mean <= high for low, high in ends) / len(ends)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_cover_normal_and_bernoulli_data(n: int) -> None:
    normal = covered(lambda source, k: source.normal(2.0, 3.0, k).tolist(), 2.0, n)
    assert normal >= 0.93
    source = default_rng(n)
    for p in (0.5, 0.97):
        hits = source.binomial(50 * n, p, 1000).tolist()
        ends = {h: clopper_pearson(h, 50 * n) for h in set(hits)}
        assert sum(ends[h][0] <= p <= ends[h][1] for h in hits) / 1000 >= 0.93
