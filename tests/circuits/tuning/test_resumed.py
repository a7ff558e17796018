import pytest
import torch
from torch.nn import functional

from circuits.tuning.facts import Fact, encode
from circuits.tuning.resumed import last_blocks, resumed_loss, run_frozen
from tests.random_models import N_LAYERS, letter_tokenizer, random_model
from trained.errors import BadInput

TOKENIZER = letter_tokenizer()
FACTS = [Fact("ab", "cd"), Fact("hello ", "w"), Fact("x", "yz."), Fact("ba", "d")]
FAMILIES = ["llama", "gpt2", "gemma2", "gemma3", "neox", "phi", "qwen3", "mistral"]


def whole_loss(model, facts):
    """-log p of the answers' tokens from a whole pass, with all its logits."""
    logits = model(facts.tokens, attention_mask=facts.mask.long()).logits[:, :-1]
    labels = facts.tokens.where(facts.answers, -100)[:, 1:]
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_frozen", range(N_LAYERS))
def test_loss_and_gradients_are_those_of_whole_passes(family, n_frozen):
    model, batch = random_model(family), encode(TOKENIZER, FACTS)
    resumed = run_frozen(model, batch, n_frozen)
    losses = [whole_loss(model, batch), resumed_loss(model, resumed, n_frozen)]
    torch.testing.assert_close(*losses)
    blocks = [p for n, p in model.named_parameters() if f".{N_LAYERS - 1}." in n]
    for whole, part in zip(
        *(torch.autograd.grad(loss, blocks) for loss in losses), strict=True
    ):
        torch.testing.assert_close(whole, part, rtol=1e-3, atol=1e-5)


def test_nothing_is_left_in_the_model():
    model, batch = random_model("llama"), encode(TOKENIZER, FACTS)
    before = model(batch.tokens, attention_mask=batch.mask.long()).logits
    resumed_loss(model, run_frozen(model, batch, 2), 2)
    after = model(batch.tokens, attention_mask=batch.mask.long()).logits
    assert torch.equal(before, after)


def test_another_residual_gives_another_loss():
    model, batch = random_model("llama"), encode(TOKENIZER, FACTS)
    resumed = run_frozen(model, batch, 2)
    moved = resumed._replace(residual=resumed.residual.roll(1, 0))
    assert resumed_loss(model, resumed, 2) != resumed_loss(model, moved, 2)


def test_last_blocks_are_named():
    model = random_model("llama")
    assert last_blocks(model, 2) == ("model.layers.1.", "model.layers.2.")
    with pytest.raises(BadInput, match="unknown number of last layers '4'"):
        last_blocks(model, 4)
