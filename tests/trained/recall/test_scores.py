import pytest
import torch
from torch.nn import functional as F

from trained.recall import losses, setting
from trained.recall.prompts import Vocabulary, draw_prompts
from trained.recall.relations import affine_table, random_table
from trained.recall.scores import (
    PositionScores,
    TokenScores,
    both_steps_loss,
    install,
    mean_relation_accuracy,
    mean_relation_loss,
    relation_quantities,
)
from trained.seeding import generator

T = 0.05
CASES = [("affine", 2), ("random", 2), ("random", 3)]


def drawn(kind, k, count=8):
    source = generator(0, kind)
    if kind == "affine":
        table = affine_table(5, generator=source)
    else:
        table = random_table(5, 20, generator=source)
    return draw_prompts(table, k, count, generator=source)


def model_of(prompts):
    k = prompts.n_examples
    return setting.constructed_model(prompts.table, k, 0, dtype=torch.float64)


def relation_cross_entropy(model, prompts):
    words = Vocabulary.of(prompts.table)
    logits = model(prompts.relation_step().tokens)[:, 0, words.relations]
    return F.cross_entropy(logits / T, prompts.relation)


def query_image(model, prompts):
    """W_KQ z_last without the second step's position, which step 1 never reads."""
    length = 2 * prompts.n_examples + 2
    z = torch.zeros(len(model.W_KQ), dtype=torch.float64)
    z[length - 1] = 1
    z[length + 1 :] = model.W_E[-1]
    image = model.W_KQ.detach() @ z
    return torch.cat([image[:length], image[length + 1 :]])


def twin(model, prompts, optimiser):
    """Token scores that start where the model's key-query matrix does."""
    scores = TokenScores(
        model.W_E,
        prompts.n_examples,
        optimiser=optimiser,
        generator=generator(0, "unused"),
    ).double()
    scores.vector.data = query_image(model, prompts) / scores.scale
    return scores


@pytest.mark.parametrize(("kind", "k"), CASES)
def test_installed_scores_give_the_real_model_the_same_losses(kind, k):
    prompts = drawn(kind, k)
    scores = PositionScores(k, dtype=torch.float64)
    for parameter in scores.parameters():
        parameter.data.normal_(generator=generator(0, "scores"))
    model = install(model_of(prompts), scores.theta, scores.omega)
    data = relation_quantities(prompts)
    n = prompts.table.shape[1]
    expected = losses.two_step_loss(
        model, prompts.steps(), words=Vocabulary.of(prompts.table), temperature=T
    )
    both = both_steps_loss(scores, data, n_subjects=n, temperature=T)
    first = mean_relation_loss(scores, data, temperature=T)
    assert both.item() == pytest.approx(expected.item(), abs=1e-10)
    real = relation_cross_entropy(model, prompts).item()
    assert first.item() == pytest.approx(real, abs=1e-10)


def test_install_clears_the_other_entries():
    prompts = drawn("affine", 2)
    model = model_of(prompts)
    assert model.W_KQ.abs().sum() > 0
    install(model, torch.ones(6), torch.ones(7))
    assert model.W_KQ.nonzero()[:, 1].unique().tolist() == [5, 6]
    assert model.W_KQ.count_nonzero() == 6 + 7


@pytest.mark.parametrize(("kind", "k"), CASES)
def test_token_scores_attend_like_the_whole_matrix(kind, k):
    prompts = drawn(kind, k)
    model = model_of(prompts)
    model.W_KQ.data.normal_(generator=generator(0, "W"))
    scores = twin(model, prompts, "gd")
    loss = mean_relation_loss(scores, relation_quantities(prompts), temperature=T)
    real = relation_cross_entropy(model, prompts)
    assert loss.item() == pytest.approx(real.item(), abs=1e-9)


def descend(parameter, loss, optimiser):
    optimiser.zero_grad()
    (gradient,) = torch.autograd.grad(loss, parameter)
    parameter.grad = gradient
    optimiser.step()


@pytest.mark.parametrize(("kind", "k"), CASES)
@pytest.mark.parametrize("steps", ["first", "both"])
def test_gradient_descent_on_token_scores_is_that_on_the_matrix(kind, k, steps):
    """Step by step; the second step's loss moves W_KQ orthogonally to z_last."""
    prompts = drawn(kind, k)
    model = model_of(prompts)
    scores = twin(model, prompts, "gd")
    data = relation_quantities(prompts)
    rate = 40 * T**2
    on_matrix = torch.optim.SGD([model.W_KQ], lr=rate)
    on_vector = torch.optim.SGD([scores.vector], lr=rate)
    words = Vocabulary.of(prompts.table)
    for _ in range(5):
        real = relation_cross_entropy(model, prompts)
        if steps == "both":
            real = losses.two_step_loss(
                model, prompts.steps(), words=words, temperature=T
            )
        descend(model.W_KQ, real, on_matrix)
        loss = mean_relation_loss(scores, data, temperature=T)
        descend(scores.vector, loss, on_vector)
        moved = scores.scale * scores.vector.detach()
        assert torch.allclose(moved, query_image(model, prompts), atol=1e-12)


def test_adam_on_token_scores_is_that_on_the_matrix_up_to_epsilon():
    """The first step moves every entry of W_KQ z_last by lr |z_last|_1."""
    prompts = drawn("affine", 2)
    model = model_of(prompts)
    scores = twin(model, prompts, "adam")
    start = query_image(model, prompts)
    data = relation_quantities(prompts)
    # Adam's epsilon blurs entries whose gradient is near it: 1e-14 takes it out.
    on_matrix = torch.optim.Adam([model.W_KQ], lr=1e-3, eps=1e-14)
    on_vector = torch.optim.Adam([scores.vector], lr=1e-3, eps=1e-14)
    for step in range(20):
        descend(model.W_KQ, relation_cross_entropy(model, prompts), on_matrix)
        loss = mean_relation_loss(scores, data, temperature=T)
        descend(scores.vector, loss, on_vector)
        moved = scores.scale * scores.vector.detach()
        assert torch.allclose(moved, query_image(model, prompts), atol=1e-7)
        if step == 0:
            length = 1e-3 * (1 + model.W_E[-1].abs().sum())
            assert torch.allclose((moved - start).abs(), length.expand_as(start))


def test_torchs_own_epsilon_hardly_matters_in_the_first_step():
    prompts = drawn("affine", 2)
    model = model_of(prompts)
    scores = twin(model, prompts, "adam")
    start = query_image(model, prompts)
    descend(
        model.W_KQ,
        relation_cross_entropy(model, prompts),
        torch.optim.Adam([model.W_KQ], lr=1e-3),
    )
    loss = mean_relation_loss(scores, relation_quantities(prompts), temperature=T)
    descend(scores.vector, loss, torch.optim.Adam([scores.vector], lr=1e-3))
    moved = scores.scale * scores.vector.detach() - start
    expected = query_image(model, prompts) - start
    assert float((moved - expected).norm() / expected.norm()) < 1e-3


@pytest.mark.parametrize("optimiser", ["gd", "adam"])
def test_token_scores_start_as_small_as_the_matrix_does(optimiser):
    embedding = torch.eye(3000)
    scores = TokenScores(
        embedding, 2, optimiser=optimiser, generator=generator(0, "start")
    )
    spread = float((scores.scale * scores.vector.detach()).std())
    assert spread == pytest.approx(0.02 * 2**0.5, rel=0.05)
    assert float(scores.scale) == pytest.approx(2**0.5 if optimiser == "gd" else 2)


def test_position_scores_start_uniform():
    prompts = drawn("affine", 2)
    scores, data = PositionScores(2), relation_quantities(prompts)
    attention = scores.attention(data["tokens"])
    assert attention.tolist()[0] == pytest.approx([1 / 6] * 6)
    accuracy = mean_relation_accuracy(scores, data)
    assert float(accuracy) == pytest.approx(1 / 6)
    assert "forms" not in scores.state_dict()
