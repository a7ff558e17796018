from dataclasses import replace
from functools import partial

import pytest
import torch

from tests.random_models import N_LAYERS, letter_tokenizer, random_model
from tests.toy import start_run
from trained.facts import Fact, answer_loss, encode, resumed_loss, run_frozen
from trained.finetuning import Curriculum, FineTuning, fine_tuning, last_blocks
from trained.trainer import Engine
from trained.training import restore, train

TOKENIZER = letter_tokenizer()
FACTS = [Fact("ab", "cd"), Fact("hello ", "w"), Fact("x", "yz."), Fact("ba", "d")]
FAMILIES = ["llama", "gpt2", "gemma2", "gemma3", "neox", "phi", "qwen3", "mistral"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_frozen", range(N_LAYERS))
def test_loss_and_gradients_are_those_of_whole_passes(family, n_frozen):
    model, batch = random_model(family), encode(TOKENIZER, FACTS)
    resumed = run_frozen(model, batch, n_frozen)
    losses = [answer_loss(model, batch), resumed_loss(model, resumed, n_frozen)]
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


def test_training_from_the_residual_ends_where_whole_passes_do(tmp_path):
    model = random_model("llama")
    config = FineTuning(epochs=4, batch_size=3, lr=0.01, last_layers=2)
    phases = Curriculum("all", (("facts",),))
    arm = fine_tuning(model, TOKENIZER, phases, {"facts": FACTS}, config)
    batch = encode(TOKENIZER, FACTS)
    whole = replace(arm.stages[0], loss=answer_loss, data=lambda _seed, _step: batch)
    ends = []
    for name, own in (("resumed", arm), ("whole", replace(arm, stages=(whole,)))):
        run = start_run(tmp_path / name, (0,))
        train(run, [own], engine=Engine())
        ends.append(restore(run, own, 0).state_dict())
    assert isinstance(arm.stages[0].loss, partial)
    assert last_blocks(model, 2) == arm.stages[0].trainable
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name], rtol=1e-3, atol=1e-4)
