import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.lens import lens_log_probs, logit_lens, middle_rank, target_rank

SEEDS = st.integers(0, 2**16)
quick = settings(deadline=None, max_examples=20)


def normal(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def identity(residual: torch.Tensor) -> torch.Tensor:
    return residual


def test_lens_by_hand():
    residuals = torch.tensor([[[0.0, 0.0]], [[math.log(3), 0.0]]])
    expected = torch.tensor([[[0.5, 0.5]], [[0.75, 0.25]]]).log()
    torch.testing.assert_close(lens_log_probs(residuals, identity), expected)
    token = torch.tensor([1])
    torch.testing.assert_close(
        logit_lens(residuals, identity, token), expected[..., 1:]
    )
    assert target_rank(residuals, identity, token).flatten().tolist() == [1.5, 2]


@given(SEEDS)
@quick
def test_asked_for_tokens_equal_columns_of_the_whole_lens(seed):
    residuals = normal(seed, 3, 2, 4, 5)
    model = torch.nn.Sequential(torch.nn.LayerNorm(5), torch.nn.Linear(5, 7)).double()
    everything = lens_log_probs(residuals, model)
    torch.testing.assert_close(
        everything.exp().sum(-1), torch.ones(3, 2, 4, dtype=torch.float64)
    )
    for shape in ((2,), (2, 4, 2)):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(7, shape, generator=generator)
        index = tokens.expand(3, 2, 4, 2)
        part = logit_lens(residuals, model, tokens)
        torch.testing.assert_close(part, everything.gather(-1, index))
        order = everything.argsort(-1, descending=True).argsort(-1) + 1.0
        ranks = target_rank(residuals, model, tokens)
        torch.testing.assert_close(ranks, order.gather(-1, index).double())


def test_one_layer_s_logits_are_held_at_a_time():
    shapes = []

    def to_logits(residual):
        shapes.append(tuple(residual.shape))
        return residual

    for lens in (logit_lens, target_rank):
        lens(normal(0, 4, 3, 5), to_logits, torch.tensor([1]))
    assert shapes == [(3, 5)] * 8


def test_an_uninformed_lens_gives_chance():
    unembedding = torch.randn(4, 9)
    residuals, tokens = torch.zeros(2, 3, 4), torch.tensor([0, 8])
    log_probs = logit_lens(residuals, lambda h: h @ unembedding, tokens)
    torch.testing.assert_close(log_probs, torch.full((2, 3, 2), -math.log(9)))
    ranks = target_rank(residuals, lambda h: h @ unembedding, tokens)
    assert ranks.unique().tolist() == [5]


def test_nan_has_no_rank_and_no_probability():
    logits = torch.tensor([[math.nan, math.nan], [1.0, 0.0]])
    assert middle_rank(logits, logits[:, 0]).nan_to_num(-1).tolist() == [-1, 1]
    found = logit_lens(logits[None], identity, torch.tensor([0]))
    assert found.isnan().flatten().tolist() == [True, False]


def test_half_precision_is_read_in_single():
    # In bfloat16 no number between 256 and 258 is left.
    logits = torch.arange(300.0).to(torch.bfloat16)[None]
    lowest = target_rank(logits[None], identity, torch.tensor([0]))
    assert lowest.item() == 300
    log_probs = lens_log_probs(logits, identity)
    torch.testing.assert_close(log_probs, logits.float().log_softmax(-1))


def test_tokens_outside_the_vocabulary_are_named():
    for lens in (logit_lens, target_rank):
        with pytest.raises(ValueError, match="from -1 to 9; valid: 0 to 8"):
            lens(torch.zeros(2, 3, 9), identity, torch.tensor([-1, 9]))
