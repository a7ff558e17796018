"""A model that wears other weights for a while."""

import pytest
import torch

from circuits.models.borrowed import borrowed, reinitialised
from circuits.models.open import behind, wrap
from tests.alive import bytes_alive
from tests.random_models import letter_tokenizer, random_model
from tests.word_models import word_model


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "neox", "mixtral"])
def test_random_weights_come_and_go(family: str) -> None:
    hf = random_model(family).requires_grad_(False)
    model = wrap(hf, letter_tokenizer())
    before = {k: v.clone() for k, v in hf.state_dict().items()}
    tokens = torch.tensor([[3, 4, 5]])
    said = model(tokens)

    def drawn(seed: int) -> dict[str, torch.Tensor]:
        with reinitialised(model, seed):
            assert not torch.allclose(model(tokens), said, atol=1e-2)
            return {k: v.clone() for k, v in hf.state_dict().items()}

    first, again, other = drawn(0), drawn(0), drawn(1)
    assert all(torch.equal(first[k], again[k]) for k in first)
    matrices = [k for k, p in hf.named_parameters() if p.ndim > 1]
    assert all(not torch.equal(first[k], other[k]) for k in matrices)
    assert all(not torch.equal(first[k], before[k]) for k in matrices)
    # As the configuration says: its standard deviation is .3.
    wide = [float(first[k].std()) for k in matrices if first[k].numel() > 500]
    assert wide
    assert all(0.02 < spread < 0.4 for spread in wide)
    assert all(torch.equal(v, before[k]) for k, v in hf.state_dict().items())
    assert torch.equal(model(tokens), said)


def test_there_is_no_second_copy_and_an_error_gives_the_weights_back() -> None:
    model = word_model(["a b c"], hidden_size=256, intermediate_size=512)
    _, hf = behind(model.module)
    size = sum(p.numel() * 4 for p in hf.parameters())
    before, alive = hf.lm_head.weight.clone(), bytes_alive()

    def spoil() -> None:
        with borrowed(dict(hf.named_parameters())):
            assert bytes_alive() - alive < 0.1 * size
            with torch.no_grad():
                hf.lm_head.weight.zero_()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        spoil()
    assert torch.equal(hf.lm_head.weight, before)
