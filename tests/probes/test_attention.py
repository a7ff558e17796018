import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.attention import (
    attention_entropy,
    attention_mass,
    balance_gap,
    concentration_error,
    pair_coherence,
    pair_coherence_null,
    pair_gap,
    rest_mass,
    within_pair_ratio,
)

PAIRS = torch.tensor([[0, 1], [2, 3]])
SEEDS = st.integers(0, 2**16)
quick = settings(deadline=None, max_examples=25)


def random_rows(seed: int, *shape: int, sharpness: float = 1.0) -> torch.Tensor:
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (sharpness * noise.double()).softmax(-1)


def uniform(n_keys: int) -> torch.Tensor:
    return torch.full((n_keys,), 1 / n_keys, dtype=torch.float64)


def row(*weights: float) -> torch.Tensor:
    return torch.tensor(weights, dtype=torch.float64)


def test_attention_mass_by_hand():
    rows = torch.stack([row(0.5, 0.3, 0.2), row(0.1, 0.1, 0.8)])
    shared = attention_mass(rows, torch.tensor([0, 2]))
    torch.testing.assert_close(shared, row(0.7, 0.9))
    per_row = attention_mass(rows, torch.tensor([[0, 0], [1, 2]]))
    torch.testing.assert_close(per_row, row(0.5, 0.9))


@given(SEEDS, st.integers(2, 8))
@quick
def test_attention_mass_of_a_set_and_its_complement_is_one(seed, n_keys):
    pattern = random_rows(seed, 2, 3, 4, n_keys)
    mask = random_rows(seed + 1, n_keys) > 1 / n_keys
    mass = attention_mass(pattern, mask)
    torch.testing.assert_close(
        mass + attention_mass(pattern, ~mask), torch.ones_like(mass)
    )
    torch.testing.assert_close(mass, attention_mass(pattern, mask.nonzero().flatten()))
    assert bool(((mass >= 0) & (mass <= 1 + 1e-12)).all())


def test_uniform_attention_has_the_share_of_the_keys():
    assert attention_mass(uniform(8), torch.tensor([3, 4])).item() == pytest.approx(
        0.25
    )


def test_keys_out_of_range_are_named():
    with pytest.raises(ValueError, match="from 1 to 5; valid: 0 to 2"):
        attention_mass(uniform(3), torch.tensor([1, 5]))
    with pytest.raises(ValueError, match="valid: 0 to 2"):
        within_pair_ratio(uniform(3), PAIRS)
    with pytest.raises(ValueError, match="share a key"):
        pair_gap(uniform(3), torch.tensor([[0, 1], [1, 2]]))


def test_key_sets_by_prompt_are_not_taken_for_sets_by_head():
    # As many prompts as heads: broadcasting would give a number, and a wrong one.
    pattern = torch.eye(3).expand(3, 3, 3)
    keys = torch.tensor([[0], [1], [2]])
    with pytest.raises(ValueError, match=r"\(3, 1\) for rows of shape \(3, 3, 3\)"):
        attention_mass(pattern, keys)
    by_prompt = attention_mass(pattern, keys[:, None])
    torch.testing.assert_close(by_prompt, torch.eye(3))


def test_concentration_error_and_balance_gap_by_hand():
    attention, targets = row(0.6, 0.1, 0.2, 0.1), torch.tensor([0, 2])
    assert concentration_error(attention, targets).item() == pytest.approx(0.2)
    assert balance_gap(attention, targets).item() == pytest.approx(0.4)


@given(SEEDS)
@quick
def test_concentration_error_follows_the_dilution_law(seed):
    n_irrelevant = seed % 50
    scores = torch.tensor([2.0, 3.0] + [0.0] * n_irrelevant, dtype=torch.float64)
    k = math.exp(2) + math.exp(3)
    eps = concentration_error(scores.softmax(-1), torch.tensor([0, 1])).item()
    assert eps == pytest.approx(n_irrelevant / (n_irrelevant + k), abs=1e-12)


@given(SEEDS)
@quick
def test_balance_gap_is_symmetric_and_bounded_by_the_mass(seed):
    rows = random_rows(seed, 3, 5)
    targets = torch.tensor([1, 4])
    gap = balance_gap(rows, targets)
    torch.testing.assert_close(gap, balance_gap(rows, targets.flip(0)))
    assert bool((gap <= attention_mass(rows, targets) + 1e-12).all())


def test_untrained_attention_is_neither_concentrated_nor_unbalanced():
    targets = torch.tensor([0, 1])
    assert concentration_error(uniform(8), targets).item() == pytest.approx(0.75)
    assert balance_gap(uniform(8), targets).item() == 0


def test_attention_entropy_by_hand():
    rows = torch.stack([row(1, 0), row(0.5, 0.5)])
    torch.testing.assert_close(attention_entropy(rows), row(0, math.log(2)))


@given(SEEDS, st.integers(1, 9))
@quick
def test_attention_entropy_is_in_range_and_blind_to_order(seed, n_keys):
    rows = random_rows(seed, 2, n_keys, sharpness=5)
    entropy = attention_entropy(rows)
    torch.testing.assert_close(entropy, attention_entropy(rows.flip(-1)))
    assert bool(((entropy >= 0) & (entropy <= math.log(n_keys) + 1e-12)).all())


def test_attention_entropy_of_uniform_is_the_maximum():
    assert attention_entropy(uniform(7)).item() == pytest.approx(math.log(7))


def test_attention_entropy_keeps_nan_and_is_single_at_least():
    assert attention_entropy(row(math.nan, 0.5)).isnan()
    half = attention_entropy(uniform(7).half())
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(math.log(7), abs=1e-3)


def test_pair_quantities_by_hand():
    attention = row(0.1, 0.2, 0.3, 0.3, 0.06, 0.04)
    assert within_pair_ratio(attention, PAIRS).item() == pytest.approx(2)
    assert pair_gap(attention, PAIRS).item() == pytest.approx(0.15)
    assert rest_mass(attention, PAIRS).item() == pytest.approx(0.1)


def test_within_pair_ratio_of_zeros():
    ratios = within_pair_ratio(
        torch.stack([row(0, 0, 0.5, 0.5), row(0, 1, 0, 0)]), PAIRS
    )
    assert ratios.tolist() == [1, math.inf]


@given(SEEDS)
@quick
def test_pair_quantities_ignore_the_order_of_pairs_and_inside_them(seed):
    rows = random_rows(seed, 2, 3, 6)
    for signal in (within_pair_ratio, pair_gap, rest_mass):
        value = signal(rows, PAIRS)
        torch.testing.assert_close(value, signal(rows, PAIRS.flip(0)))
        torch.testing.assert_close(value, signal(rows, PAIRS.flip(1)))
        assert value.shape == (2, 3)
    assert bool((within_pair_ratio(rows, PAIRS) >= 1).all())
    assert bool((pair_gap(rows, PAIRS) <= 0.5).all())


def test_pair_quantities_of_uniform_attention():
    assert within_pair_ratio(uniform(6), PAIRS).item() == 1
    assert pair_gap(uniform(6), PAIRS).item() == 0
    assert rest_mass(uniform(6), PAIRS).item() == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("weights", "is_pairwise"),
    [
        ((0.32, 0.32, 0.18, 0.18, 0, 0), True),
        ((0.25, 0.25, 0.25, 0.25, 0, 0), False),
        ((0.18, 0.32, 0.32, 0.18, 0, 0), False),
        ((0.5, 0, 0.5, 0, 0, 0), False),
        ((0.32, 0.32, 0.05, 0.05, 0.13, 0.13), False),
    ],
    ids=["pairwise", "saddle", "crossed", "subjects only", "elsewhere"],
)
def test_pair_quantities_tell_a_pairwise_pattern_from_others(weights, is_pairwise):
    attention = row(*weights)
    equal = within_pair_ratio(attention, PAIRS).item() < 1.05
    distinct = pair_gap(attention, PAIRS).item() > 0.08
    whole = rest_mass(attention, PAIRS).item() < 0.02
    assert (equal and distinct and whole) == is_pairwise


def test_a_gap_needs_two_pairs():
    with pytest.raises(ValueError, match="at least 2 pairs, got 1"):
        pair_gap(uniform(4), PAIRS[:1])
    with pytest.raises(ValueError, match="at least 2 pairs, got 1"):
        pair_coherence(uniform(1), uniform(1))


def test_pair_coherence_by_hand():
    subject = row(0.1, 0.2, 0.3)
    assert pair_coherence(subject, row(0.2, 0.4, 0.6)).item() == pytest.approx(1)
    assert pair_coherence(subject, row(0.3, 0.2, 0.1)).item() == pytest.approx(-1)
    assert pair_coherence(subject, row(0.2, 0.4, 0.3)).item() == pytest.approx(0.5)


def test_pair_coherence_of_a_planted_pairwise_pattern_and_its_null():
    mass = row(0.05, 0.2, 0.1, 0.25, 0.4)
    assert pair_coherence(mass, mass).item() == pytest.approx(1)
    null = pair_coherence_null(mass, mass)
    assert null.shape == (4,)
    assert null.mean().item() == pytest.approx(-0.25)


@given(SEEDS, st.floats(0.1, 10), st.floats(0, 1))
@quick
def test_pair_coherence_is_blind_to_scale_and_offset(seed, scale, offset):
    subject, answer = random_rows(seed, 3, 5), random_rows(seed + 1, 3, 5)
    value = pair_coherence(subject, answer)
    torch.testing.assert_close(value, pair_coherence(scale * subject + offset, answer))
    null = pair_coherence_null(subject, answer)
    torch.testing.assert_close(null.mean(-1), -value / 4)


def test_answers_only_and_random_attention_are_incoherent():
    answers = random_rows(1, 2000, 5)
    constant = torch.full_like(answers, 0.1)
    assert pair_coherence(constant, answers).abs().max().item() == 0
    assert abs(pair_coherence(random_rows(0, 2000, 5), answers).mean().item()) < 0.05
