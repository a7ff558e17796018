"""The lean stand-in for the whole matrix is the real model, loss and gradient."""

import pytest
import torch

from trained.recall.model import constructed_model, two_step_loss
from trained.recall.task import Vocabulary, draw_episodes, random_table
from trained.recall.whole import (
    WholeScores,
    prompt_quantities,
    shuffle_prompts,
    whole_loss,
)
from trained.seeding import generator

T = 0.05


def drawn(k=2, count=12):
    source = generator(0, "whole")
    table = random_table(6, 20, generator=source)
    return draw_episodes(table, k, count, generator=source)


def pair(prompts):
    """The real model and its stand-in, with the same matrix."""
    k = prompts.n_examples
    real = constructed_model(prompts.table, k, 0, spread=0.5, dtype=torch.float64)
    return real, WholeScores(real.W_E, k, spreads=(0.5,), seed=0)


def lean_loss(lean, data):
    return whole_loss(lean, data, n_subjects=6, temperatures=(T,))


@pytest.mark.parametrize(("k", "count"), [(2, 12), (3, 12), (2, 50)])
def test_the_loss_and_its_gradient_are_the_real_models(k, count):
    """Both steps: before, a fixed set trained the first step's loss alone."""
    prompts = drawn(k, count)
    real, lean = pair(prompts)
    assert torch.equal(real.W_KQ, lean.W_KQ[0])
    words = Vocabulary.of(prompts.table)
    one = two_step_loss(real, prompts.steps(), words=words, temperature=T)
    other = lean_loss(lean, prompt_quantities(prompts))
    assert other.item() == pytest.approx(one.item(), abs=1e-10)
    (wanted,) = torch.autograd.grad(one, real.W_KQ)
    (found,) = torch.autograd.grad(other, lean.W_KQ)
    assert torch.allclose(found[0], wanted, atol=1e-9)


def test_readings_do_not_touch_each_other():
    prompts = drawn()
    data = prompt_quantities(prompts)
    embedding = pair(prompts)[0].W_E
    both = WholeScores(embedding, 2, spreads=(0.5, 0.1), seed=0)
    loss = whole_loss(both, data, n_subjects=6, temperatures=(0.05, 0.01))
    loss.backward()
    for index, (spread, heat) in enumerate(((0.5, 0.05), (0.1, 0.01))):
        alone = WholeScores(embedding, 2, spreads=(spread,), seed=0)
        whole_loss(alone, data, n_subjects=6, temperatures=(heat,)).backward()
        assert torch.allclose(both.W_KQ.grad[index], alone.W_KQ.grad[0], atol=1e-9)


def test_permuted_answers_are_those_of_other_prompts():
    prompts = drawn()
    real, lean = pair(prompts)
    data = prompt_quantities(prompts)
    source = generator(3, "order")
    order = torch.randperm(12, generator=generator(3, "order"))
    assert not torch.equal(order, torch.arange(12))
    steps = prompts.steps()
    steps = {k: b.with_targets(b.targets[order]) for k, b in steps.items()}
    words = Vocabulary.of(prompts.table)
    one = two_step_loss(real, steps, words=words, temperature=T)
    shuffled = shuffle_prompts(data, source)
    other = lean_loss(lean, shuffled)
    assert other.item() == pytest.approx(one.item(), abs=1e-10)


def test_it_may_start_from_nothing():
    prompts = drawn()
    lean = WholeScores(torch.eye(33), 2, spreads=(0.0,), seed=0)
    assert not lean.W_KQ.any()
    rows, _ = lean.attentions(prompt_quantities(prompts))
    assert torch.allclose(rows, torch.full_like(rows, 1 / 6))
