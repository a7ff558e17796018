"""The columns of some tokens are those of the whole vocabulary."""

import pytest
import torch

from circuits.backends import backend_of
from circuits.backends.anatomy import Readout
from circuits.hooks import record
from circuits.inspection.lens import answer_logit
from circuits.models import open as pretrained
from circuits.sites import Site
from tests.random_models import letter_tokenizer, random_model


@torch.no_grad()
@pytest.mark.parametrize("places", [(), (5,), (5, 2)])
def test_columns_of_every_family(family: str, places: tuple[int, ...]) -> None:
    """With a bias (phi) and a soft cap (gemma2)."""
    model = random_model(family)
    readout = backend_of(model).readout(model)
    source = torch.Generator().manual_seed(0)
    residual = torch.randn(3, *places, 32, generator=source)
    tokens = torch.tensor([[4, 7], [0, 39], [9, 9]])
    found = readout.target_logits(residual, tokens)
    index = tokens.reshape(3, *[1] * len(places), 2).expand(3, *places, 2)
    expected = readout.logits(residual).gather(-1, index)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_column_by_hand() -> None:
    unembedding = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 3.0]])
    bias = torch.tensor([0.0, 0.5, 1.0])
    readout = Readout(lambda states: 2 * states, unembedding, bias)
    found = readout.target_logits(torch.tensor([[1.0, 10.0]]), torch.tensor([[2, 1]]))
    assert found.tolist() == [[2 * 32 + 1.0, 2 * 10 + 0.5]]


@torch.no_grad()
def test_the_lens_of_the_answer_is_a_column_of_the_whole_lens(family: str) -> None:
    model = pretrained.wrap(random_model(family), letter_tokenizer())
    prompts = model.prompts(["the cat", "a dog"], ["s", "b"])
    found = answer_logit(model, prompts)
    assert found.axes == ("layer", "example", "position")
    assert found.labels["layer"] == ("embedding", "0", "1", "2")
    logits = model(prompts.tokens, prompts.mask)
    own = logits.gather(-1, prompts.targets[:, None, None].expand(2, 7, 1))[..., 0]
    torch.testing.assert_close(
        found.values[-1][prompts.mask], own[prompts.mask], rtol=1e-5, atol=1e-5
    )
    with record(model, [Site("resid_post", 0)]) as seen:
        model(prompts.tokens, prompts.mask)
    whole = model.readout.logits(seen[Site("resid_post", 0)])
    own = whole.gather(-1, prompts.targets[:, None, None].expand(2, 7, 1))[..., 0]
    torch.testing.assert_close(found.values[1], own, rtol=1e-5, atol=1e-5)
