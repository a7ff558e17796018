import math

import pytest
import torch

from tests.lego_theory_models import planted
from trained.lego.action import action
from trained.lego.config import Theory
from trained.lego.task import (
    Sentences,
    Vocabulary,
    draw_sentences,
    right_steps,
    rollout,
    table_of,
)
from trained.lego.theory import TheoryModel, feature_ratio, loss_floor, smooth_relu

N_VARIABLES = 24


def sentences(text: str, length: int, count: int = 40) -> Sentences:
    return draw_sentences(
        table_of(action(text)),
        count,
        length,
        n_variables=N_VARIABLES,
        generator=torch.Generator().manual_seed(1),
    )


def test_smooth_relu_by_hand() -> None:
    z = torch.tensor([-3.0, 0.0, 0.5, 1.0, 4.0])
    expected = torch.tensor([0.0, 0.0, 0.5**10 / 10, 0.1, 3.1])
    torch.testing.assert_close(smooth_relu(z), expected)


def test_smooth_relu_has_the_slope_of_its_formula() -> None:
    z = torch.linspace(-2, 3, 41, dtype=torch.float64, requires_grad=True)
    smooth_relu(z).sum().backward()
    assert z.grad is not None
    torch.testing.assert_close(z.grad, z.detach().clamp(0, 1) ** 9)


@pytest.mark.parametrize(
    ("text", "ratio"), [("C6", 1.0), ("S3", 1.25), ("S4", 19 / 9), ("S5", 97 / 28)]
)
def test_feature_ratio_by_hand(text: str, ratio: float) -> None:
    assert feature_ratio(action(text)) == pytest.approx(ratio)


def test_the_constants_of_the_config_are_used() -> None:
    words = Vocabulary.of(action("C3"), N_VARIABLES)
    sizes = Theory(clip=4.0, power=2, knee=0.5, value_neurons=8)
    model = TheoryModel(words, sizes, generator=torch.Generator().manual_seed(0))
    neurons = model.block.value
    assert neurons.clip == pytest.approx(4 * math.log(words.size))
    assert neurons.shape == (3, 8)
    assert neurons.relu(torch.tensor(0.25)).item() == pytest.approx(0.0625)


def test_floor_by_hand() -> None:
    assert loss_floor(100, 2.0) == pytest.approx(math.log(1 + 99 / 100**2))


def test_attention_starts_uniform() -> None:
    words = Vocabulary.of(action("C3"), N_VARIABLES)
    model = TheoryModel(words, Theory(), generator=torch.Generator().manual_seed(0))
    tokens = sentences("C3", 3).tokens(words)
    _, cache = model.run_with_cache(tokens)
    pattern = cache["blocks.0.attn.hook_pattern"]
    seen = torch.tensor([4.0, 5.0, 6.0])
    torch.testing.assert_close(pattern[0, 0, :, 0], 1 / seen)
    assert pattern[0, 0, 0, 4] == 0  # the next answer is not visible


def test_initial_weights_have_the_stated_spread() -> None:
    words = Vocabulary.of(action("C6"), 60)
    model = TheoryModel(words, Theory(), generator=torch.Generator().manual_seed(0))
    assert float(model.block.variable.W1.detach().std()) == pytest.approx(
        words.size**-0.5, rel=0.02
    )
    assert not model.tables.Q43.any()


@pytest.mark.parametrize("text", ["C4", "S3"])
def test_planted_circuit_solves_long_chains(text: str) -> None:
    model, given = planted(text, N_VARIABLES, 8.0), sentences(text, 20)
    right = right_steps(model(given.tokens(model.vocabulary)), given)
    assert all(part.all() for part in right)
    written = rollout(model, given, model.vocabulary)
    assert torch.equal(written.values, given.values)
    assert torch.equal(written.variables, given.variables)


@pytest.mark.parametrize("text", ["C4", "S3"])
def test_without_diagonals_it_does_not(text: str) -> None:
    model, given = planted(text, N_VARIABLES, 0.0), sentences(text, 20)
    _, value = right_steps(model(given.tokens(model.vocabulary)), given)
    assert value.float().mean() < 0.6


def test_both_ways_to_mix_clauses_agree() -> None:
    words = Vocabulary.of(action("S3"), N_VARIABLES)
    model = TheoryModel(words, Theory(), generator=torch.Generator().manual_seed(3))
    tokens = sentences("S3", 4).tokens(words)
    weights = torch.rand(40, 4, 8)
    filled = model.block.value._filled(words.slots(tokens), 4)
    torch.testing.assert_close(
        model.block.value._looked_up(weights, filled),
        model.block.value._mixed(weights, filled),
    )


def test_logits_are_clipped_from_above_only() -> None:
    model = planted("C3", N_VARIABLES, 8.0)
    neurons = model.block.value
    received = torch.full((1, *neurons.shape), 1e3)
    assert neurons.logits(received).unique().tolist() == pytest.approx([neurons.clip])
    assert not neurons.logits(-received).any()


def test_value_logits_are_those_of_the_whole_model() -> None:
    model, given = planted("S3", N_VARIABLES, 2.0), sentences("S3", 3)
    tokens = given.tokens(model.vocabulary)
    whole = model(tokens, queries=slice(1, 3))
    torch.testing.assert_close(
        model.value_logits(tokens, queries=slice(1, 3)), whole.value
    )
    torch.testing.assert_close(model.variable_logits(tokens)[:, 1:], whole.variable)
