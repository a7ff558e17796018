import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.alignment import (
    centred,
    centred_paired_cosine,
    compressed,
    debiased_linear_cka,
    linear_cka,
    nearest_match_accuracy,
    paired_cosine,
    polar_coordinates,
    procrustes_distance,
    shifted_pair_cosine,
    shuffled_pair_null,
    sparsified,
)

SEEDS = st.integers(0, 2**16)
quick = settings(deadline=None, max_examples=20)


SCORES = (
    paired_cosine,
    nearest_match_accuracy,
    linear_cka,
    debiased_linear_cka,
    procrustes_distance,
)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def rotation(seed: int, size: int) -> torch.Tensor:
    return torch.linalg.qr(normal(seed, size, size)).Q


def test_paired_cosine_by_hand():
    source = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    target = torch.tensor([[3.0, 4.0], [0.0, -1.0], [1.0, 0.0]])
    torch.testing.assert_close(
        paired_cosine(source, target), torch.tensor([0.6, -1.0, 0.0])
    )


@given(SEEDS, st.floats(0.01, 100))
@quick
def test_paired_cosine_is_blind_to_scale_and_rotation(seed, scale):
    source, target = normal(seed, 2, 3, 4), normal(seed + 1, 2, 3, 4)
    turn = rotation(seed + 2, 4)
    value = paired_cosine(source, target)
    torch.testing.assert_close(
        value, paired_cosine(scale * source @ turn, target @ turn)
    )
    assert bool((value.abs() <= 1).all())


def test_paired_cosine_of_unrelated_states_is_zero_on_average():
    assert abs(paired_cosine(normal(0, 500, 64), normal(1, 500, 64)).mean()) < 0.02


def test_shifted_pair_cosine_by_hand():
    states = torch.eye(3)
    assert shifted_pair_cosine(states, states).tolist() == [0, 0, 0]
    rolled = states.roll(1, 0)
    assert shifted_pair_cosine(states, rolled).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="shift 3 keeps all 3 pairs"):
        shifted_pair_cosine(states, states, shift=3)


@given(SEEDS, st.integers(1, 4))
@quick
def test_shifted_pair_cosine_is_undone_by_the_opposite_shift(seed, shift):
    source, target = normal(seed, 5, 4), normal(seed + 1, 5, 4)
    there = shifted_pair_cosine(source, target, shift=shift)
    back = shifted_pair_cosine(target, source, shift=-shift)
    torch.testing.assert_close(there.sum(), back.sum())


def test_shuffled_pair_null_by_hand():
    # The only derangement of two pairs is the swap.
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    target = torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    null = shuffled_pair_null(
        source, target, paired_cosine, generator=generator(0), n_shuffles=3
    )
    torch.testing.assert_close(null, torch.tensor([[0.6] * 3, [0.0] * 3]))


@given(SEEDS, st.integers(2, 6))
@quick
def test_shuffled_pair_null_never_uses_a_matching_pair(seed, n_pairs):
    states = torch.eye(n_pairs)[None].expand(2, -1, -1)
    for score, shape in ((paired_cosine, (2, n_pairs)), (nearest_match_accuracy, (2,))):
        null = shuffled_pair_null(
            states, states, score, generator=generator(seed), n_shuffles=5
        )
        assert null.shape == (*shape, 5)
        assert null.abs().max().item() == 0


def test_shuffled_pair_null_equals_the_cosine_when_nothing_is_paired():
    shared = normal(0, 1, 8).expand(5, 8)
    null = shuffled_pair_null(
        shared, shared, paired_cosine, generator=generator(0), n_shuffles=4
    )
    torch.testing.assert_close(null, torch.ones(5, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match="at least 2 pairs"):
        shuffled_pair_null(
            shared[:1], shared[:1], paired_cosine, generator=generator(0)
        )


def test_the_null_of_a_set_score_holds_unrelated_sets_and_not_related_ones():
    source, unrelated = normal(0, 12, 30), normal(1, 12, 30)
    for score in (linear_cka, debiased_linear_cka, procrustes_distance):
        for target, is_related in ((unrelated, False), (source + unrelated, True)):
            null = shuffled_pair_null(source, target, score, generator=generator(0))
            outside = not null.min() <= score(source, target) <= null.max()
            assert outside == is_related


def test_centring_by_hand():
    states = torch.tensor([[1.0, 1.0], [3.0, 1.0]])
    torch.testing.assert_close(centred(states), torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    moved = states * torch.tensor([1.0, 5.0]) + 7
    torch.testing.assert_close(centred_paired_cosine(states, moved), torch.ones(2))


@given(SEEDS)
@quick
def test_centred_paired_cosine_is_blind_to_a_common_direction(seed):
    source, target = normal(seed, 6, 4), normal(seed + 1, 6, 4)
    offset = 100 * normal(seed + 2, 1, 4)
    value = centred_paired_cosine(source, target)
    torch.testing.assert_close(value, centred_paired_cosine(source + offset, target))


def test_a_common_direction_fools_the_plain_cosine_only():
    offset = 10 * torch.ones(1, 64, dtype=torch.float64)
    source, target = normal(0, 200, 64) + offset, normal(1, 200, 64) + offset
    assert paired_cosine(source, target).mean() > 0.9
    assert abs(centred_paired_cosine(source, target).mean()) < 0.05


def test_nearest_match_accuracy_by_hand():
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    target = torch.tensor([[1.0, 0.1], [1.0, 0.0]])
    # Source 0 is nearer to target 1, source 1 to target 0.
    assert nearest_match_accuracy(source, target).item() == 0
    assert nearest_match_accuracy(source, target.flip(0)).item() == 1


@given(SEEDS, st.integers(2, 6))
@quick
def test_nearest_match_accuracy_of_identical_states_is_one(seed, n_pairs):
    states = normal(seed, 2, n_pairs, 8)
    assert nearest_match_accuracy(states, 3 * states).tolist() == [1, 1]


def test_nearest_match_accuracy_of_collapsed_or_unrelated_states_is_chance():
    collapsed = normal(0, 1, 8).expand(5, 8)
    assert nearest_match_accuracy(collapsed, collapsed).item() == pytest.approx(0.2)
    many = nearest_match_accuracy(normal(1, 300, 5, 8), normal(2, 300, 5, 8))
    assert many.mean().item() == pytest.approx(0.2, abs=0.05)


def test_linear_cka_by_hand():
    source = torch.tensor([[1.0], [-1.0], [0.0], [0.0]])
    target = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    # (s.t)^2 / (|s|^2 |t|^2) = 4 / 8 for one centred column each.
    assert linear_cka(source, target).item() == pytest.approx(0.5)
    assert linear_cka(source, torch.ones(4, 2)).item() == 0


@given(SEEDS, st.floats(0.1, 10))
@quick
def test_cka_is_one_up_to_rotation_scale_and_offset(seed, scale):
    source = normal(seed, 8, 3)
    target = scale * source @ rotation(seed + 1, 3) + 2
    for signal in (linear_cka, debiased_linear_cka):
        assert signal(source, target).item() == pytest.approx(1)
    other = normal(seed + 2, 8, 5)
    torch.testing.assert_close(linear_cka(source, other), linear_cka(other, source))
    assert 0 <= linear_cka(source, other).item() <= 1


def test_only_debiased_cka_is_zero_for_unrelated_wide_representations():
    source, target = normal(0, 50, 20, 100), normal(1, 50, 20, 100)
    assert linear_cka(source, target).mean() > 0.5
    assert abs(debiased_linear_cka(source, target).mean()) < 0.05
    with pytest.raises(ValueError, match="needs 4 examples, got 3"):
        debiased_linear_cka(source[0, :3], target[0, :3])


@pytest.mark.parametrize("seed", range(5))
def test_examples_that_are_equally_far_apart_have_no_structure(seed):
    simplex = (torch.eye(6) @ rotation(seed, 6).float()) + normal(seed, 1, 6).float()
    for other in (simplex, normal(9, 6, 6).float()):
        assert debiased_linear_cka(simplex, other).item() == 0
    # Any order of them looks the same to a set score.
    assert linear_cka(simplex, simplex.roll(1, 0)).item() == pytest.approx(1, abs=1e-5)


def test_procrustes_distance_by_hand():
    first = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    second = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert procrustes_distance(first, first).item() == pytest.approx(0, abs=1e-6)
    assert procrustes_distance(first, second).item() == pytest.approx(2)


@given(SEEDS)
@quick
def test_procrustes_distance_is_zero_up_to_rotation_and_symmetric(seed):
    source, other = normal(seed, 6, 3), normal(seed + 1, 6, 3)
    turned = 5 * source @ rotation(seed + 2, 3) - 1
    assert procrustes_distance(source, turned).item() == pytest.approx(0, abs=1e-9)
    distance = procrustes_distance(source, other)
    torch.testing.assert_close(distance, procrustes_distance(other, source))
    assert 0 <= distance.item() <= 2


def test_compressed_examples_keep_their_inner_products():
    wide, narrow = normal(0, 2, 5, 9), normal(1, 2, 5, 3)
    found = compressed(wide)
    assert found.shape == (2, 5, 5)
    torch.testing.assert_close(found @ found.mT, wide @ wide.mT)
    assert compressed(narrow) is narrow
    # Compressed together, two sets keep their scores; each by itself, they do not.
    source, target = wide
    together = compressed(torch.cat([source, target])[:8])
    cosines = paired_cosine(source[:3], target[:3])
    torch.testing.assert_close(paired_cosine(together[:3], together[5:8]), cosines)
    apart = paired_cosine(compressed(source)[:3], compressed(target)[:3])
    assert not torch.allclose(apart, cosines)


def by_definition(source, target):
    """CKA and Procrustes distance of wide sets, from d_model x d_model matrices."""
    s, t = centred(source), centred(target)
    own = torch.linalg.matrix_norm(s.mT @ s) * torch.linalg.matrix_norm(t.mT @ t)
    cka = torch.linalg.matrix_norm(t.mT @ s) ** 2 / own
    s, t = s / torch.linalg.matrix_norm(s), t / torch.linalg.matrix_norm(t)
    return cka, 2 - 2 * torch.linalg.matrix_norm(t.mT @ s, ord="nuc")


def test_scores_of_wide_sets_are_those_of_their_definition():
    source, target = normal(0, 6, 20), normal(1, 6, 20)
    cka, distance = by_definition(source, target)
    torch.testing.assert_close(linear_cka(source, target), cka)
    torch.testing.assert_close(procrustes_distance(source, target), distance)


@pytest.mark.parametrize("score", SCORES)
def test_nan_stays_nan_and_spares_other_layers(score):
    source, target = normal(0, 2, 5, 3), normal(1, 2, 5, 3)
    whole = score(source, target), score(target, source)
    source[0, 4, 2] = torch.nan
    broken = score(source, target), score(target, source)
    for before, after in zip(whole, broken, strict=True):
        assert bool(after[0].isnan().any())
        torch.testing.assert_close(after[1], before[1])


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("scale", [1e25, 1e-30, 1e37, 1e-37])
def test_no_scale_is_too_large_or_too_small(score, scale):
    source, target = normal(0, 5, 3).float(), normal(1, 5, 3).float()
    found = score(source * scale, target)
    torch.testing.assert_close(found, score(source, target), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(score, dtype):
    # In float16 their squares overflow.
    source, target = ((500 * normal(seed, 5, 3)).to(dtype) for seed in (0, 1))
    found = score(source, target)
    assert found.dtype == torch.float32
    assert torch.equal(found, score(source.float(), target.float()))
    nothing = paired_cosine(torch.zeros(1, 3, dtype=dtype), target[:1])
    assert nothing.item() == 0


@pytest.mark.parametrize("score", SCORES)
def test_a_set_without_variation_resembles_nothing(score):
    # Their mean is not exactly the row itself.
    constant = normal(0, 1, 30).float().expand(7, 30)
    value = {nearest_match_accuracy: 1 / 7, procrustes_distance: 2}.get(score, 0)
    found = score(centred(constant), centred(normal(1, 7, 30).float()))
    torch.testing.assert_close(found, torch.full_like(found, value))


def test_procrustes_distance_of_unrelated_sets_is_large():
    assert procrustes_distance(normal(0, 500, 4), normal(1, 500, 4)).item() > 1.5


def test_polar_coordinates_by_hand():
    cosines = torch.tensor([[1.0, 0.0], [-1.0, 0.5]])
    expected = torch.tensor([[0.0, math.pi / 2], [math.pi, math.pi / 3]])
    torch.testing.assert_close(polar_coordinates(cosines), expected)


@given(st.floats(-1.01, 1.01))
@quick
def test_polar_coordinates_survive_round_off(cosine):
    angle = polar_coordinates(torch.tensor([cosine], dtype=torch.float64)).item()
    assert 0 <= angle <= math.pi


def test_unrelated_states_stand_at_a_right_angle():
    cosines = paired_cosine(normal(0, 500, 64), normal(1, 500, 64))
    assert polar_coordinates(cosines).mean().item() == pytest.approx(
        math.pi / 2, abs=0.02
    )


def test_sparsified_by_hand():
    states = torch.tensor([[3.0, -4.0, 1.0, 0.5], [0.0, 0.1, -0.2, 0.0]])
    kept = torch.tensor([[0.0, -4.0, 0.0, 0.0], [0.0, 0.0, -0.2, 0.0]])
    assert torch.equal(sparsified(states, 0.25), kept)
    # A cosine of -0.6 becomes 0: the largest parts are different ones.
    source, target = torch.tensor([[4.0, -3.0]]), torch.tensor([[0.0, 2.0]])
    torch.testing.assert_close(paired_cosine(source, target), torch.tensor([-0.6]))
    sparse = paired_cosine(sparsified(source, 0.5), sparsified(target, 0.5))
    assert sparse.item() == 0


@given(SEEDS, st.floats(0.01, 1))
@quick
def test_sparsified_keeps_a_share_and_is_idempotent(seed, share):
    states = normal(seed, 3, 2, 20)
    sparse = sparsified(states, share)
    counts = (sparse != 0).sum(-1)
    assert bool((counts == max(1, round(share * 20))).all())
    assert torch.equal(sparsified(sparse, share), sparse)
    assert torch.equal(sparsified(-2 * states, share), -2 * sparse)
    assert torch.equal(sparsified(states, 1.0), states)


def test_sparsified_states_that_are_unrelated_have_no_cosine():
    source, target = (sparsified(normal(seed, 500, 64), 0.2) for seed in (0, 1))
    assert abs(paired_cosine(source, target).mean()) < 0.02


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(ValueError, match=f"share {share}"):
        sparsified(torch.ones(2, 3), share)
