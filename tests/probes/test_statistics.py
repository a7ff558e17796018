import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.statistics import (
    bootstrap_interval,
    paired_sign_flip_pvalue,
    standard_error,
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


def test_sign_flip_pvalue_by_hand():
    first, second = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    # All differences positive: 1 of 8 flips reaches the sum, 2 of 8 its size.
    assert paired_sign_flip_pvalue(first, second) == 0.25
    assert paired_sign_flip_pvalue(first, second, alternative="greater") == 0.125
    assert paired_sign_flip_pvalue(first, second, alternative="less") == 1


@given(SEEDS, st.integers(1, 16))
@quick
def test_sign_flip_pvalue_is_a_probability_and_symmetric(seed, n):
    first, second = normal(seed, n), normal(seed + 1, n)
    p = paired_sign_flip_pvalue(first, second, n_resamples=500)
    assert 0 < p <= 1
    assert p == paired_sign_flip_pvalue(second, first, n_resamples=500)


def test_sign_flip_pvalue_is_uniform_under_the_null():
    pvalues = [
        paired_sign_flip_pvalue(normal(seed, 8), normal(seed + 9000, 8))
        for seed in range(300)
    ]
    rejected = sum(p <= 0.05 for p in pvalues) / 300
    assert rejected <= 0.09
    assert paired_sign_flip_pvalue(torch.ones(3), torch.ones(3)) == 1


def test_random_flips_agree_with_enumeration_in_size():
    shifted = normal(0, 20) + 1.5
    assert paired_sign_flip_pvalue(shifted, torch.zeros(20).double()) < 0.001


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
    assert tie_split_accuracy(broken, torch.tensor([0, 1])) == 0
    with pytest.raises(ValueError, match="from 0 to 8; valid: 0 to 7"):
        tie_split_accuracy(logits[:2], torch.tensor([0, 8]))
