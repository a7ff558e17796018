import math
from dataclasses import replace

import pytest
import torch

from trained.recall.model import constructed_model, two_step_loss
from trained.recall.scores import (
    NO_DOUBT,
    Pace,
    PositionScores,
    ball,
    both_strides,
    copies_loss,
    descended,
    displace,
    install,
    mirrored,
    relation_strides,
    settled,
    within_symmetry,
)
from trained.recall.task import (
    Vocabulary,
    affine_table,
    draw_episodes,
    random_table,
    shuffle_counts,
)
from trained.recall.theory import (
    answer_loss,
    pattern_counts,
    quadratic_forms,
    relation_loss,
)
from trained.seeding import generator

T = 0.05


def drawn(kind, count=8):
    source = generator(0, kind)
    if kind == "affine":
        table = affine_table(5, generator=source)
    else:
        table = random_table(5, 20, generator=source)
    return draw_episodes(table, 2, count, generator=source)


def copies(count=3):
    moved = torch.randn(count, 13, generator=generator(0, "m"), dtype=torch.float64)
    model = PositionScores(2, moved)
    with torch.no_grad():
        displace(dict(model.named_parameters()))
    return model


def counts_of(prompts):
    return pattern_counts(prompts)[None].double()


@pytest.mark.parametrize("kind", ["affine", "random"])
def test_installed_scores_give_the_real_model_the_same_losses(kind):
    prompts, scores = drawn(kind), copies(1)
    model = constructed_model(prompts.table, 2, 0, dtype=torch.float64)
    install(model, scores.theta[0], scores.omega[0])
    words = Vocabulary.of(prompts.table)
    expected = two_step_loss(model, prompts.steps(), words=words, temperature=T)
    data = {"counts": counts_of(prompts)}
    both = copies_loss(scores, data, n_subjects=torch.tensor([5]), temperature=T)
    assert both.item() == pytest.approx(expected.item(), abs=1e-10)


def test_a_copys_loss_is_the_mean_over_its_prompts_one_by_one():
    scores, subjects = copies(2), torch.tensor([5, 5])
    counts = torch.cat([counts_of(drawn("affine", 3)), counts_of(drawn("random", 3))])
    n_patterns = counts.shape[-1]
    source = generator(0, "targets")
    data = {
        "counts": counts,
        "pattern": torch.randint(n_patterns, (2, 3), generator=source),
        "answer": torch.randint(3, (2, 3), generator=source),
    }
    alone = [
        relation_loss(
            scores.theta[copy].softmax(-1),
            counts[copy, row],
            scores.forms,
            temperature=T,
            target=data["pattern"][copy, row],
        )
        + answer_loss(
            scores.omega[copy].softmax(-1),
            n_subjects=subjects[copy],
            temperature=T,
            target=data["answer"][copy, row],
        )
        for copy in range(2)
        for row in range(3)
    ]
    both = copies_loss(scores, data, n_subjects=subjects, temperature=T)
    assert both.item() == pytest.approx(sum(alone).item() / 3, abs=1e-10)


def test_install_clears_the_other_entries():
    model = constructed_model(drawn("affine").table, 2, 0)
    assert model.W_KQ.abs().sum() > 0
    install(model, torch.ones(6), torch.ones(7))
    assert model.W_KQ.nonzero()[:, 1].unique().tolist() == [5, 6]
    assert model.W_KQ.count_nonzero() == 6 + 7


def test_position_scores_start_uniform_and_without_doubt():
    scores = PositionScores(2, torch.zeros(2, 13))
    assert scores.theta.softmax(-1).tolist()[0] == pytest.approx([1 / 6] * 6)
    assert scores.doubt.tolist() == [NO_DOUBT] * 2
    assert "forms" not in scores.state_dict()


def by_autograd(theta, data, pace, steps):
    """Gradient descent as the definition has it."""
    forms = quadratic_forms(2)
    counts = data["counts"].expand(len(theta), -1, -1)
    for _ in range(steps):
        theta = theta.detach().requires_grad_()
        rows = theta.softmax(-1)[:, None].expand(-1, counts.shape[1], -1)
        heat = pace.temperature[:, None]
        loss = relation_loss(rows, counts, forms, temperature=heat)
        (slope,) = torch.autograd.grad(loss.mean(1).sum(), theta)
        even = torch.where(pace.held, (slope + mirrored(slope)) / 2, slope)
        theta = theta - pace.rate * even
    return theta.detach()


def paced():
    """Three copies, each with its own temperature and rate, the last one held."""
    heat = torch.tensor([[0.05], [0.02], [0.03]], dtype=torch.float64)
    held = torch.tensor([[False], [False], [True]])
    return Pace(heat, 100 * heat**2, torch.tensor([3, 5, 8]), held)


@pytest.mark.parametrize("count", [1, 6])
def test_every_copy_descends_as_autograd_would_have_it(count):
    data = {"counts": counts_of(drawn("random", count))}
    start = copies().theta.detach()
    ahead = descended(start, data, paced(), 7)
    assert torch.allclose(ahead, by_autograd(start, data, paced(), 7), atol=1e-12)


def test_the_second_step_descends_as_autograd_would_have_it():
    pace, start = paced(), copies().omega.detach()
    omega, doubt = settled(start, torch.full((3,), NO_DOUBT).double(), pace, 4)
    theirs, worst = start, torch.full((3,), NO_DOUBT).double()
    for _ in range(4):
        theirs = theirs.detach().requires_grad_()
        loss = answer_loss(
            theirs.softmax(-1), n_subjects=pace.n_subjects, temperature=pace.temperature
        )
        (slope,) = torch.autograd.grad(loss.sum(), theirs)
        worst = torch.maximum(worst, loss.detach().expm1().log())
        theirs = theirs - pace.rate * slope
    assert torch.allclose(omega, theirs, atol=1e-12)
    # Of the second copy the loss is 0 to the last bit: only log space follows it.
    assert torch.allclose(doubt[[0, 2]], worst[[0, 2]], atol=1e-6)
    assert float(doubt[1]) < -40


def test_certainty_is_followed_below_what_one_minus_p_can_hold():
    """The least answer probability was looked at now and then, and saturated at 1."""
    omega = torch.ones(1, 7, dtype=torch.float64)
    omega[0, 4] = 31.0
    heat = torch.tensor([[0.004]], dtype=torch.float64)
    pace = Pace(heat, heat**2, torch.tensor([8]))
    start = torch.full((1,), NO_DOUBT).double()
    still, doubt = settled(omega, start, pace, 1000)
    # l(a3) = 2 q5 / T = 500 against seven answers with 0.
    assert float(doubt) == pytest.approx(-500 + math.log(7), abs=1e-3)
    assert torch.equal(still, omega)


def test_one_step_of_rate_one_takes_the_whole_stride():
    data = {"counts": counts_of(drawn("affine", 1))}
    model = copies()
    before = model.theta.detach().clone()
    loss = relation_strides(model, data, pace=paced(), stride=5)
    (slope,) = torch.autograd.grad(loss, model.theta)
    ahead = descended(before, data, paced(), 5)
    assert torch.allclose(before - slope, ahead, atol=1e-12)
    heat, forms = paced().temperature, quadratic_forms(2)
    counts = data["counts"][0].expand(3, -1)
    own = relation_loss(before.softmax(-1), counts, forms, temperature=heat)
    assert float(loss.detach()) == pytest.approx(float(own.sum()))
    both_strides(model, data, pace=paced(), stride=5).backward()
    omega, doubt = settled(model.omega.detach(), model.doubt.detach(), paced(), 5)
    assert torch.allclose(model.omega - model.omega.grad, omega, atol=1e-12)
    assert torch.allclose(model.doubt - model.doubt.grad, doubt, atol=1e-6)


def test_equal_targets_draw_attention_to_nothing_that_tells_relations_apart():
    data = {"counts": counts_of(drawn("random", 1))}
    shuffled = shuffle_counts(data, generator(0, "unused"))
    start = torch.zeros(3, 6, dtype=torch.float64)
    start[:, 0] += 0.5
    real = descended(start, data, paced(), 200).softmax(-1)
    twin = descended(start, shuffled, paced(), 200).softmax(-1)
    assert float(real[:, :4].sum(1).min()) > 0.6 > float(twin[:, :4].sum(1).max())


def test_held_copies_stay_symmetric_and_others_do_not():
    data = {"counts": counts_of(drawn("affine", 1))}
    pace = replace(paced(), held=torch.ones(3, 1, dtype=torch.bool))
    zero = torch.zeros(3, 6, dtype=torch.float64)
    held = descended(zero, data, pace, 300)
    assert torch.equal(held[:, :2], held[:, 2:4])
    free = descended(zero + 1e-6 * torch.eye(6)[0], data, paced(), 300)
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
