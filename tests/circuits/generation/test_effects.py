"""What a step does to what follows, against the instrument and transformers."""

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from circuits.generation.chain import Chain
from circuits.generation.effects import Effect
from circuits.generation.generate import generate
from circuits.inspection.ablation import ablate, knock_out
from circuits.interventions.part import Part
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput, NothingChanged

LAYERS = range(3)


def opened(family: str) -> LanguageModel:
    hf, tokenizer = random_model(family).requires_grad_(False), letter_tokenizer()
    hf.generation_config.eos_token_id = tokenizer.eos_token = None
    return pretrained.wrap(hf, tokenizer)


def chain_of(model: LanguageModel, text: str = "abcdefg") -> Chain:
    """Ten steps of a token each, which is its state; special tokens are none."""
    options = {"steps": r"\s", "roles": r"(?P<state>\S+)", "signals": ()}
    (chain,) = generate(model, [text], 10, **options)
    assert len(chain.steps) > 8
    return chain


def log_probs(chain: Chain, start: int) -> Tensor:
    """Of every token from the column `start` on, in one whole pass."""
    tokens = chain.batch.tokens
    logs = chain.model(tokens)[0, start - 1 : -1].log_softmax(-1)
    return logs.gather(-1, tokens[0, start:, None])[:, 0]


def start_of(chain: Chain, step: int) -> int:
    return chain.n_prompt + chain.step(step).tokens.start


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_knock_out_is_that_of_the_instrument(family: str) -> None:
    model = opened(family)
    chain = chain_of(model)
    start = start_of(chain, 2)
    later = tuple(range(start, chain.batch.tokens.shape[1]))
    found = chain.knock_out(1)
    torch.testing.assert_close(found.before.values, log_probs(chain, start))
    with knock_out(model, chain.batch, LAYERS, to="step 1", query=later):
        expected = log_probs(chain, start)
    torch.testing.assert_close(found.after.values, expected, rtol=1e-5, atol=1e-5)
    assert found.lost == pytest.approx(
        float((found.before.values - expected).sum()), abs=1e-4
    )
    one = chain.knock_out(1, layers=[1], head=2)
    with knock_out(model, chain.batch, 1, to="step 1", query=later, head=2):
        expected = log_probs(chain, start)
    torch.testing.assert_close(one.after.values, expected, rtol=1e-5, atol=1e-5)


def masked_text(chain: Chain, step: int) -> str:
    """What transformers writes after a step whose keys its mask hides from then on."""
    hf, tokens = chain.model.module, chain.batch.tokens
    start, end = start_of(chain, step + 1), tokens.shape[1]
    cache, new = DynamicCache(config=hf.config), tokens[:, :start]
    mask, said = torch.ones_like(new), []
    with torch.no_grad():
        for length in range(start, end):
            places = torch.arange(length - new.shape[1], length)[None]
            logits = hf(
                input_ids=new,
                attention_mask=mask,
                position_ids=places,
                past_key_values=cache,
            ).logits
            new = logits[:, -1].argmax(-1)[:, None]
            said.append(int(new))
            mask = torch.ones(1, length + 1, dtype=torch.long)
            mask[:, start_of(chain, step) : start] = 0
    return str(chain.model.tokenizer.decode(said))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_what_is_written_without_a_step_is_what_a_mask_makes_of_it(family: str) -> None:
    chain = chain_of(opened(family))
    found = [chain.knock_out(step).text for step in (1, 2)]
    assert found == [masked_text(chain, step) for step in (1, 2)]
    assert any(text not in chain.text for text in found)


def test_a_step_that_nobody_looks_at_changes_nothing() -> None:
    """The negative control: behind windows of four tokens, late steps cannot see it."""
    model = opened("mistral")
    chain = chain_of(model)
    with pytest.raises(NothingChanged):
        chain.knock_out(1, since=5)
    assert chain.knock_out(1, since=4).lost != 0


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_an_exchange_is_a_transplant_of_the_instrument(family: str) -> None:
    model = opened(family)
    chain, donor = chain_of(model), chain_of(model, "hijklmnop")
    assert chain.step(1).text != donor.step(1).text
    found = chain.exchange(1, donor, 1, role="state")
    part = Part("resid_post", 1, positions="step 1 state")
    with ablate(model, chain.batch, part, "transplant", reference=donor.batch):
        expected = log_probs(chain, start_of(chain, 2))
    torch.testing.assert_close(found.after.values, expected, rtol=1e-5, atol=1e-5)
    assert found.text != chain.text[-len(found.text) :]


def test_after_the_last_layer_only_the_next_token_is_exchanged() -> None:
    """Nobody reads that residual but the unembedding: worked out by hand."""
    model = opened("llama")
    chain, donor = chain_of(model), chain_of(model, "hijklmnop")
    found: Effect = chain.exchange(1, donor, 2)
    first = model(donor.batch.tokens)[0, start_of(donor, 2) - 1].log_softmax(-1)
    own = chain.batch.tokens[0, start_of(chain, 2)]
    torch.testing.assert_close(found.after.values[0], first[own])
    torch.testing.assert_close(found.after.values[1:], found.before.values[1:])


def test_a_chain_in_place_of_itself_changes_nothing() -> None:
    chain = chain_of(opened("gpt2"))
    with pytest.raises(NothingChanged):
        chain.exchange(1, chain, 1)


def test_bad_steps_and_roles_are_named() -> None:
    chain = chain_of(opened("gpt2"))
    with pytest.raises(BadInput, match="unknown step '11'; choose from: 1 to 10"):
        chain.knock_out(11)
    with pytest.raises(BadInput, match="no step 11 after step 10"):
        chain.knock_out(10)
    with pytest.raises(BadInput, match="fewer than two tokens follow"):
        chain.knock_out(9)
    with pytest.raises(BadInput, match="no step 1 after step 2"):
        chain.knock_out(2, since=1)
    with pytest.raises(BadInput, match="has no clause"):
        chain.exchange(1, chain, 1, role="clause")
    with pytest.raises(BadInput, match="not among the signals"):
        chain.mass_by_step()
