import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.lens import lens_log_probs, logit_lens, target_logits, target_rank

SEEDS = st.integers(0, 2**16)
quick = settings(deadline=None, max_examples=20)


def normal(seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_lens_by_hand():
    residuals = torch.tensor([[[0.0, 0.0]], [[math.log(3), 0.0]]])
    unembedding = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    expected = torch.tensor([[[0.5, 0.5]], [[0.75, 0.25]]]).log()
    torch.testing.assert_close(lens_log_probs(residuals, unembedding), expected)
    torch.testing.assert_close(logit_lens(residuals, unembedding), expected)
    token = torch.tensor([1])
    torch.testing.assert_close(
        logit_lens(residuals, unembedding, tokens=token), expected[..., 1:]
    )
    assert target_logits(residuals, unembedding, token).flatten().tolist() == [0, 0]
    assert target_rank(residuals, unembedding, token).flatten().tolist() == [1.5, 2]


@given(SEEDS)
@quick
def test_asked_for_tokens_equal_columns_of_the_whole_lens(seed):
    residuals, unembedding = normal(seed, 3, 2, 4, 5), normal(seed + 1, 5, 7)
    bias = normal(seed + 2, 7)
    options = {"final_norm": torch.nn.LayerNorm(5).double(), "bias": bias}
    everything = lens_log_probs(residuals, unembedding, **options)
    torch.testing.assert_close(
        everything.exp().sum(-1), torch.ones(3, 2, 4, dtype=torch.float64)
    )
    for shape in ((2,), (2, 4, 2)):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(7, shape, generator=generator)
        index = tokens.expand(3, 2, 4, 2)
        part = logit_lens(residuals, unembedding, tokens=tokens, **options)
        torch.testing.assert_close(part, everything.gather(-1, index))
        logits = target_logits(residuals, unembedding, tokens, **options)
        torch.testing.assert_close(logits.diff(dim=-1), part.diff(dim=-1))
        ranks = target_rank(residuals, unembedding, tokens, **options)
        order = everything.argsort(-1, descending=True).argsort(-1) + 1.0
        torch.testing.assert_close(ranks, order.gather(-1, index).double())


def test_the_lens_of_the_last_layer_is_the_model_output():
    norm, residual = torch.nn.RMSNorm(6).double(), normal(0, 1, 3, 6)
    head = torch.nn.Linear(6, 9).double()
    expected = head(norm(residual)).log_softmax(-1)
    lens = lens_log_probs(residual, head.weight.mT, final_norm=norm, bias=head.bias)
    torch.testing.assert_close(lens, expected)


def test_an_uninformed_lens_gives_chance():
    residuals, unembedding = torch.zeros(2, 3, 4), torch.randn(4, 9)
    tokens = torch.tensor([0, 8])
    log_probs = logit_lens(residuals, unembedding, tokens=tokens)
    torch.testing.assert_close(log_probs, torch.full((2, 3, 2), -math.log(9)))
    assert target_rank(residuals, unembedding, tokens).unique().tolist() == [5]


def test_tokens_outside_the_vocabulary_are_named():
    residuals, unembedding = torch.zeros(2, 3, 4), torch.zeros(4, 9)
    for lens in (target_logits, target_rank):
        with pytest.raises(ValueError, match="from -1 to 9; valid: 0 to 8"):
            lens(residuals, unembedding, torch.tensor([-1, 9]))
