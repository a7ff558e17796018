from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from trained.recall.model import constructed_model, two_step_loss
from trained.recall.scores import (
    Pace,
    PositionScores,
    TokenScores,
    ball,
    both_steps_loss,
    descended,
    displace,
    install,
    mean_relation_loss,
    mirrored,
    relation_quantities,
    strided_loss,
    within_symmetry,
)
from trained.recall.task import (
    Vocabulary,
    affine_table,
    draw_episodes,
    random_table,
    shuffle_counts,
)
from trained.recall.theory import quadratic_forms, relation_loss
from trained.seeding import generator

T = 0.05
CASES = [("affine", 2), ("random", 2), ("random", 3)]


def drawn(kind, k, count=8):
    source = generator(0, kind)
    if kind == "affine":
        table = affine_table(5, generator=source)
    else:
        table = random_table(5, 20, generator=source)
    return draw_episodes(table, k, count, generator=source)


def model_of(prompts):
    k = prompts.n_examples
    return constructed_model(prompts.table, k, 0, dtype=torch.float64)


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
        spread=0.02,
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
    expected = two_step_loss(
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
            real = two_step_loss(model, prompts.steps(), words=words, temperature=T)
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
        embedding, 2, optimiser=optimiser, spread=0.02, generator=generator(0, "start")
    )
    spread = float((scores.scale * scores.vector.detach()).std())
    assert spread == pytest.approx(0.02 * 2**0.5, rel=0.05)
    assert float(scores.scale) == pytest.approx(2**0.5 if optimiser == "gd" else 2)


def test_position_scores_start_uniform():
    prompts = drawn("affine", 2)
    scores, data = PositionScores(2), relation_quantities(prompts)
    attention = scores.attention(data["tokens"])
    assert attention.tolist()[0] == pytest.approx([1 / 6] * 6)
    assert "forms" not in scores.state_dict()


def by_autograd(theta, data, pace, steps):
    """Gradient descent as the definition has it."""
    forms = quadratic_forms(2)
    for _ in range(steps):
        theta = theta.detach().requires_grad_()
        counts = data["counts"].expand(len(theta), -1)
        heat = pace.temperature
        loss = relation_loss(theta.softmax(-1), counts, forms, temperature=heat)
        (slope,) = torch.autograd.grad(loss.sum(), theta)
        even = torch.where(pace.held, (slope + mirrored(slope)) / 2, slope)
        theta = theta - pace.rate * even
    return theta.detach()


def paced():
    """Three copies, each with its own temperature and rate, the last one held."""
    heat = torch.tensor([[0.05], [0.02], [0.03]], dtype=torch.float64)
    return Pace(heat, 100 * heat**2, torch.tensor([[False], [False], [True]]))


def test_every_copy_descends_as_autograd_would_have_it():
    data = {"counts": relation_quantities(drawn("affine", 2, 1))["counts"]}
    start = torch.randn(3, 6, generator=generator(0, "m"), dtype=torch.float64)
    ahead = descended(start, data, quadratic_forms(2), paced(), 7)
    assert torch.allclose(ahead, by_autograd(start, data, paced(), 7), atol=1e-12)


def test_one_step_of_rate_one_takes_the_whole_stride():
    data = {"counts": relation_quantities(drawn("affine", 2, 1))["counts"]}
    moved = torch.randn(3, 13, generator=generator(0, "m"), dtype=torch.float64)
    copies = PositionScores(2, perturbations=moved, dtype=torch.float64)
    with torch.no_grad():
        displace(dict(copies.named_parameters()))
    before = copies.theta.detach().clone()
    loss = strided_loss(copies, data, pace=paced(), stride=5)
    (slope,) = torch.autograd.grad(loss, copies.theta)
    ahead = descended(before, data, copies.forms, paced(), 5)
    assert torch.allclose(before - slope, ahead, atol=1e-12)
    counts = data["counts"].expand(3, -1)
    heat = paced().temperature
    own = relation_loss(before.softmax(-1), counts, copies.forms, temperature=heat)
    assert float(loss.detach()) == pytest.approx(float(own.sum()))


def test_equal_targets_draw_attention_to_nothing_that_tells_relations_apart():
    data = relation_quantities(drawn("random", 2, 1))
    shuffled = shuffle_counts({"counts": data["counts"]}, generator(0, "unused"))
    start = torch.zeros(3, 6, dtype=torch.float64)
    start[:, 0] += 0.5
    forms, pace = quadratic_forms(2), paced()
    real = descended(start, data, forms, pace, 200).softmax(-1)
    twin = descended(start, shuffled, forms, pace, 200).softmax(-1)
    assert float(real[:, :4].sum(1).min()) > 0.6 > float(twin[:, :4].sum(1).max())


def test_held_copies_stay_symmetric_and_others_do_not():
    data = {"counts": relation_quantities(drawn("affine", 2, 1))["counts"]}
    pace = replace(paced(), held=torch.ones(3, 1, dtype=torch.bool))
    zero = torch.zeros(3, 6, dtype=torch.float64)
    held = descended(zero, data, quadratic_forms(2), pace, 300)
    assert torch.equal(held[:, :2], held[:, 2:4])
    free = descended(
        zero + 1e-6 * torch.eye(6)[0], data, quadratic_forms(2), paced(), 300
    )
    assert float((free[0, 0] - free[0, 2]).abs()) > 0.1


def test_a_symmetric_displacement_is_as_long():
    moved = ball(0.01, 13, generator=generator(0, "ball"))
    even = within_symmetry(moved)
    assert float(even.norm()) == pytest.approx(float(moved.norm()))
    assert torch.equal(even[:2], even[2:4])


def test_a_perturbation_is_uniform_in_its_ball():
    source = generator(0, "ball")
    norms = torch.stack([ball(0.01, 13, generator=source).norm() for _ in range(400)])
    assert float(norms.max()) <= 0.01
    # Uniform in 13 dimensions: P(norm <= 0.9 radius) = 0.9^13 = .254.
    share = float((norms <= 0.009).double().mean())
    assert share == pytest.approx(0.9**13, abs=0.08)
