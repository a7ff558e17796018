from dataclasses import replace

import pytest
import torch

from trained.arm import Arm, Stage, gradient_descent
from trained.recall.algorithm import Problem, Schedule, algorithm1
from trained.recall.patterns import (
    answer_loss,
    pattern_counts,
    quadratic_forms,
    relation_loss,
)
from trained.recall.prompts import draw_prompts
from trained.recall.relations import affine_table, all_bijections, random_table
from trained.recall.scores import PositionScores, both_steps_loss, relation_quantities
from trained.seeding import generator
from trained.store import Run
from trained.trainer import Engine
from trained.training import restore, train

T = 0.05


def drawn(seed, k=2, count=8):
    source = generator(seed, "algorithm")
    table = random_table(8, 64, generator=source)
    return draw_prompts(table, k, count, generator=source)


def problem_of(prompts, temperature=T):
    counts = torch.stack([pattern_counts(p) for p in prompts])
    n, k = prompts[0].table.shape[1], prompts[0].n_examples
    return Problem(counts, n_subjects=n, n_examples=k, temperature=temperature)


def warm_up(n_replicas, temperature=T):
    prompt = draw_prompts(all_bijections(3), 2, 1, generator=generator(0, "warm"))
    return problem_of([prompt] * n_replicas, temperature)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("temperature", [0.05, 0.004])
def test_the_gradients_are_autograds(k, temperature):
    prompts = [drawn(seed, k) for seed in range(3)]
    problem = problem_of(prompts, temperature)
    source = generator(0, "scores")
    theta = torch.randn(3, 2 * k + 2, generator=source, dtype=torch.float64)
    omega = torch.randn(3, 2 * k + 3, generator=source, dtype=torch.float64)
    slopes = (
        problem.theta_gradient(theta.numpy()),
        problem.omega_gradient(omega.numpy()),
    )
    for scores in (theta, omega):
        scores.requires_grad_()
    first = [
        relation_loss(
            v[None],
            pattern_counts(p),
            quadratic_forms(k),
            temperature=temperature,
        ).mean()
        for v, p in zip(theta.softmax(1), prompts, strict=True)
    ]
    second = [
        answer_loss(q, n_subjects=8, temperature=temperature) for q in omega.softmax(1)
    ]
    for losses, scores, slope in zip(
        (first, second), (theta, omega), slopes, strict=True
    ):
        (expected,) = torch.autograd.grad(torch.stack(losses).sum(), scores)
        assert torch.allclose(torch.from_numpy(slope), expected, atol=1e-9)
    likely = problem.answer_probability(omega.detach().numpy())
    expected = (-torch.stack(second)).exp().tolist()
    assert likely.tolist() == pytest.approx(expected)


def test_with_three_subjects_no_answer_is_unshown():
    problem = warm_up(1)
    omega = torch.randn(1, 7, generator=generator(0, "omega"), dtype=torch.float64)
    expected = answer_loss(omega.softmax(1)[0], n_subjects=3, temperature=T)
    likely = problem.answer_probability(omega.numpy())[0]
    assert likely == pytest.approx((-expected).exp().item())


@pytest.mark.parametrize("batching", ["loop", "vmap"])
def test_the_training_engine_takes_the_same_steps(tmp_path, batching):
    seeds, steps, rate = (0, 1), 40, 40 * T**2
    stage = Stage(
        name="descent",
        steps=steps,
        optimiser=gradient_descent(rate),
        loss=lambda model, data: both_steps_loss(
            model, data, n_subjects=8, temperature=T
        ),
        data=lambda seed, _step: relation_quantities(drawn(seed)),
    )
    arm = Arm("scores", lambda _: PositionScores(2, dtype=torch.float64), (stage,))
    run = Run.create(tmp_path / "run", {"study": "recall", "seeds": list(seeds)})
    train(run, [arm], engine=Engine(batching=batching))
    schedule = Schedule(steps, rate, 0, rate, 0.0, symmetric=False)
    problem = problem_of([drawn(seed) for seed in seeds])
    outcome = algorithm1(problem, schedule, perturbations=[None, None])
    for index, seed in enumerate(seeds):
        model = restore(run, arm, seed)
        assert torch.allclose(model.theta, outcome.theta_first[index], atol=1e-9)
        assert torch.allclose(model.omega, outcome.omega_first[index], atol=1e-9)
        assert float(model.theta.detach().abs().max()) > 0.1


@pytest.mark.parametrize("temperature", [0.05, 0.03])
def test_symmetric_gradients_stay_at_the_saddle_and_a_perturbation_leaves_it(
    temperature,
):
    # A fifth of the schedule's steps: the query's and EoS' weights fall like 1/steps.
    schedule = replace(
        Schedule.warmup(temperature), first_steps=4000, second_steps=2000
    )
    sources = [generator(seed, "perturb") for seed in range(4)]
    outcome = algorithm1(
        warm_up(5, temperature), schedule, perturbations=[*sources, None]
    )
    saddle = torch.tensor([0.25, 0.25, 0.25, 0.25, 0, 0], dtype=torch.float64)
    for v in (*outcome.attention_first, outcome.attention[-1]):
        assert float((v - saddle).abs().max()) < 0.01
        # The pairs are exactly equal, so the two relations tie exactly.
        assert v[0] == v[2]
        assert v[1] == v[3]
    light = {0.05: 0.133, 0.03: 0.152}[temperature]
    for v in outcome.attention[:-1]:
        ordered = v.sort().values
        assert ordered[2:4].tolist() == pytest.approx([light] * 2, abs=5e-3)
        assert ordered[4:].tolist() == pytest.approx([0.5 - light] * 2, abs=5e-3)
        # The two equal tokens are one pair, not one of each.
        assert abs(v[0] - v[1]) < abs(v[0] - v[2])
    sides = outcome.attention[:-1, 0] < outcome.attention[:-1, 2]
    assert sides.unique().numel() == 2


def test_the_perturbation_lies_in_the_ball():
    radius = 0.01
    schedule = Schedule(0, 1.0, 0, 1.0, radius, symmetric=True)
    sources = [generator(seed, "ball") for seed in range(200)]
    outcome = algorithm1(warm_up(200), schedule, perturbations=sources)
    moved = torch.cat(
        [outcome.theta - outcome.theta_first, outcome.omega - outcome.omega_first], 1
    )
    norms = moved.norm(dim=1)
    assert float(norms.max()) <= radius
    # Uniform in 13 dimensions: P(norm <= 0.9 radius) = 0.9^13 = .254.
    share = float((norms <= 0.9 * radius).double().mean())
    assert share == pytest.approx(0.9**13, abs=0.1)
    assert float(moved.mean(0).abs().max()) < 0.1 * radius


def test_the_path_is_recorded_from_start_to_end():
    schedule = Schedule(50, 0.1, 30, 0.1, 1e-3, symmetric=True)
    outcome = algorithm1(
        warm_up(2), schedule, perturbations=[generator(0, "path"), None]
    )
    assert outcome.path_steps[0] == 0
    assert outcome.path_steps[-1] == 80
    assert (outcome.path_steps.diff() >= 0).all()
    assert outcome.path[0].flatten().tolist() == pytest.approx([1 / 6] * 12)
    assert torch.allclose(outcome.path[-1], outcome.attention)
    assert torch.allclose(outcome.path.sum(-1), torch.ones(()).double())


def test_low_temperature_finds_the_relation_of_eight_prompts():
    temperature = 0.01
    table = affine_table(8, generator=generator(0, "affine"))
    prompts = draw_prompts(table, 2, 8, generator=generator(0, "few"))
    outcome = algorithm1(
        problem_of([prompts], temperature),
        Schedule.general(temperature),
        perturbations=[generator(0, "perturb")],
    )
    unseen = pattern_counts(draw_prompts(table, 2, 200, generator=generator(0, "test")))
    forms = quadratic_forms(2)
    first, last = (
        (-relation_loss(v, unseen, forms, temperature=temperature)).exp().mean().item()
        for v in (outcome.attention_first, outcome.attention)
    )
    assert first == pytest.approx(0.5, abs=0.02)
    assert last > 0.9
    assert float(outcome.lowest_answer_probability) > 0.9999


def test_the_schedules_are_the_specified_ones():
    warm = Schedule.warmup(0.05)
    assert (warm.first_steps, warm.second_steps, warm.symmetric) == (
        20_000,
        20_000,
        True,
    )
    assert warm.first_rate == warm.second_rate == pytest.approx(0.25)
    assert warm.radius == pytest.approx(1.25e-4)
    low = Schedule.general(0.004)
    assert (low.first_steps, low.symmetric) == (1, False)
    assert low.first_rate == pytest.approx(100 * 0.004**1.5 * 5.521461)
    assert low.second_rate == pytest.approx(40 * 0.004**2)
    assert low.second_steps == 27607
