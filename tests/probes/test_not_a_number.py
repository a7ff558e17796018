"""Laws of every signal: NaN stays NaN, and neither scale nor precision breaks one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from probes import alignment, attention
from probes.lens import lens_log_probs, middle_rank
from probes.statistics import tie_split_credit

PAIRED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "paired_cosine": alignment.paired_cosine,
    "shifted_pair_cosine": alignment.shifted_pair_cosine,
    "centred_paired_cosine": alignment.centred_paired_cosine,
    "nearest_match_accuracy": alignment.nearest_match_accuracy,
    "linear_cka": alignment.linear_cka,
    "debiased_linear_cka": alignment.debiased_linear_cka,
    "procrustes_distance": alignment.procrustes_distance,
}
PAIRS = torch.tensor([[0, 1], [2, 3]])
ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "attention_mass": lambda rows: attention.attention_mass(rows, PAIRS[0]),
    "concentration_error": lambda rows: attention.concentration_error(rows, PAIRS[0]),
    "balance_gap": lambda rows: attention.balance_gap(rows, PAIRS[0]),
    "attention_entropy": attention.attention_entropy,
    "within_pair_ratio": lambda rows: attention.within_pair_ratio(rows, PAIRS),
    "pair_gap": lambda rows: attention.pair_gap(rows, PAIRS),
    "pair_coherence": lambda rows: attention.pair_coherence(rows, rows.flip(-1)),
}


def states(seed: int) -> Tensor:
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", PAIRED)
def test_nan_in_a_state_is_nan_in_the_signal(name: str) -> None:
    source, target = states(0), states(1)
    source[2, 3] = torch.nan
    assert PAIRED[name](source, target).isnan().any()
    assert PAIRED[name](target, source).isnan().any()


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("scale", [1e25, 1e-30])
def test_scale_changes_nothing(name: str, scale: float) -> None:
    source, target = states(0), states(1)
    expected = PAIRED[name](source, target)
    torch.testing.assert_close(PAIRED[name](source * scale, target), expected)


@pytest.mark.parametrize("name", PAIRED)
def test_half_precision_is_computed_in_single(name: str) -> None:
    source, target = states(0).half(), states(1).half()
    found = PAIRED[name](source * 1024, target)
    assert found.dtype == torch.float32
    expected = PAIRED[name](source.double() * 1024, target.double())
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ROWS)
def test_nan_in_a_row_is_nan_in_the_signal(name: str) -> None:
    rows = torch.tensor([0.1, torch.nan, 0.3, 0.2, 0.4])
    assert ROWS[name](rows).isnan().all()
    assert ROWS[name](rows.nan_to_num(0.1)).isfinite().all()


def test_mass_of_many_small_weights_adds_up_in_half_precision() -> None:
    rows = torch.full((1, 4096), 1 / 4096).half()
    mass = attention.attention_mass(rows, torch.arange(4096))
    assert mass.item() == pytest.approx(1.0, abs=1e-3)


def test_nan_logits_have_no_rank_no_probability_and_no_credit() -> None:
    logits = torch.tensor([[1.0, torch.nan, 0.0], [2.0, 1.0, 0.0]])
    assert lens_log_probs(logits, lambda x: x)[0].isnan().all()
    assert middle_rank(logits, logits[:, 1]).isnan().tolist() == [True, False]
    credit = tie_split_credit(logits, torch.tensor([0, 0]))
    assert credit.isnan().tolist() == [True, False]
