"""Signals are computed in single precision, whatever the model computes in."""

import copy

import pytest
import torch
from torch import Tensor

from circuits.hooks import Signal, measure, record
from circuits.inspection.alignment import alignment
from circuits.inspection.attention import attention
from circuits.inspection.inspect import inspect
from circuits.inspection.lens import lens, log_prob
from circuits.inspection.patching import attribute
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from tests.random_models import letter_tokenizer, random_model

TEXTS = ["abcdefgh", "hgfedcba", "aabbccdd", "bdfhjlnp"]


@pytest.fixture(params=["llama", "gpt2", "gemma2"])
def pair(request: pytest.FixtureRequest) -> tuple[LanguageModel, LanguageModel]:
    """A model in bfloat16, and one in float32 with the very same weights."""
    short = random_model(request.param).to(torch.bfloat16).requires_grad_(False)
    exact = copy.deepcopy(short).float()
    one, two = (pretrained.wrap(hf, letter_tokenizer()) for hf in (short, exact))
    return one, two


def test_the_lens_is_that_of_the_widened_weights(
    pair: tuple[LanguageModel, LanguageModel],
) -> None:
    short, exact = pair
    residual = torch.randn(2, 3, short.d_model).to(torch.bfloat16)
    found, expected = (m.readout.logits(residual) for m in (short, exact))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    tokens = torch.tensor([[1, 2], [3, 4]])
    own = short.readout.target_logits(residual, tokens)
    torch.testing.assert_close(own[0], expected[0][:, [1, 2]], rtol=1e-5, atol=1e-5)
    rounded = expected.to(torch.bfloat16).float()
    assert float((rounded - expected).abs().max()) > 1e-3


def test_attention_adds_up_to_one(pair: tuple[LanguageModel, LanguageModel]) -> None:
    """Rows and masses that were rounded to bfloat16 would miss it by a thousandth."""
    short, _ = pair
    prompts = short.prompts(TEXTS)
    rows = attention(short, prompts).values
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))

    def halves(mass: Tensor, _batch: object) -> Tensor:
        assert mass.dtype == torch.float32
        return mass.sum(-1)

    columns = torch.arange(8).expand(len(TEXTS), 8)
    keys = (lambda _: columns[:, :4], lambda _: columns[:, 4:])
    signal = Signal("pattern", halves, ("head", "query"), keys=keys)
    mass = measure(short, [prompts], {"mass": signal})["mass"].values[0]
    torch.testing.assert_close(mass, torch.ones_like(mass), rtol=0, atol=1e-6)
    with record(short, [Site("pattern", 0)]) as seen:
        short(prompts.tokens, prompts.mask)
    assert seen[Site("pattern", 0)].dtype == torch.float32


def test_every_signal_is_near_that_of_the_exact_model(
    pair: tuple[LanguageModel, LanguageModel],
) -> None:
    found = []
    for model in pair:
        clean = model.prompts(TEXTS, list("ijkl"), roles={"one": list("dgbf")})
        corrupt = clean.with_targets(clean.targets.roll(1))
        view = inspect(
            model,
            "abcdefgh",
            answer=["ij", "k"],
            roles={"one": "d"},
            signals=("lens", "attention", "alignment", "patching"),
            corrupt="abcIefgh",
            corrupt_answer="m",
        )
        assert view.attention is not None
        assert view.alignment is not None
        assert view.patching is not None
        found.append(
            [
                lens(model, clean).log_prob,
                log_prob(model, clean),
                attention(model, clean, to="one"),
                alignment(model, clean, "one", "last"),
                attribute(model, clean, corrupt),
                view.lens.log_prob,
                view.attention.last_row,
                view.alignment.select(of="roles"),
                view.patching,
            ]
        )
    for own, other in zip(*found, strict=True):
        assert own.values.dtype in (torch.float32, torch.float64), own.name
        size = float(other.values.abs().max())
        error = float((own.values - other.values).abs().max())
        assert error < 0.1 * size, (own.name, error, size)
