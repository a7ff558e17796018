import pytest
import torch

from trained.recall.optimum import (
    optimal_attention,
    printed_saddle_curvature,
    saddle_curvature,
)
from trained.recall.patterns import (
    pattern_counts,
    quadratic_forms,
    relation_logits,
    relation_loss,
    right_pattern,
)
from trained.recall.prompts import draw_prompts
from trained.recall.relations import affine_table, all_bijections, random_table
from trained.seeding import generator


def counts_of(table, k=2, count=1):
    return pattern_counts(draw_prompts(table, k, count, generator=generator(0, "p")))


THREE = counts_of(all_bijections(3))
EIGHT = counts_of(affine_table(8, generator=generator(0, "affine")))


def light_and_heavy(counts, temperature, k=2):
    v = optimal_attention(counts, k, temperature=temperature)
    assert v[-2:].tolist() == pytest.approx([0, 0], abs=1e-3)
    return v[:-2].tolist()


@pytest.mark.parametrize(
    ("counts", "temperature", "light", "heavy"),
    [
        (THREE, 0.05, 0.133, 0.367),
        (THREE, 0.03, 0.152, 0.348),
        (THREE, 0.01, 0.163, 0.337),
        (EIGHT, 0.05, 0.180, 0.320),
        (EIGHT, 0.02, 0.181, 0.319),
        (EIGHT, 0.01, 0.173, 0.327),
    ],
)
def test_the_optimum_with_two_examples(counts, temperature, light, heavy):
    found = light_and_heavy(counts, temperature)
    assert found == pytest.approx([light, light, heavy, heavy], abs=1e-3)


def test_the_optimum_of_a_random_table():
    table = random_table(8, 64, generator=generator(0, "random"))
    found = light_and_heavy(counts_of(table, count=300), 0.05)
    assert found == pytest.approx([0.179, 0.179, 0.321, 0.321], abs=0.01)


def test_three_examples_tend_to_an_arithmetic_progression():
    table = random_table(8, 512, generator=generator(0, "random"))
    counts = counts_of(table, k=3, count=60)
    at_hundredth = light_and_heavy(counts, 0.01, k=3)
    wanted = [x for x in (0.103, 0.151, 0.246) for _ in range(2)]
    assert at_hundredth == pytest.approx(wanted, abs=0.01)
    colder = light_and_heavy(counts, 0.005, k=3)
    limit = torch.tensor([1, 1, 2, 2, 3, 3]) / 12
    distance = [
        float((torch.tensor(x) - limit).abs().max()) for x in (at_hundredth, colder)
    ]
    assert distance[1] < distance[0]


def scanned_light(temperature):
    """The best a of (a, a, 1/2-a, 1/2-a, 0, 0) by a scan of the logarithm of the loss.

    BFGS cannot follow the loss itself below T = 0.003: its slope is under rounding.
    """
    a = torch.linspace(0.001, 0.249, 24801, dtype=torch.float64)
    zero = torch.zeros_like(a)
    v = torch.stack([a, a, 0.5 - a, 0.5 - a, zero, zero], dim=1)
    logits = relation_logits(v, quadratic_forms(2))
    right = right_pattern(2)
    wrong = THREE[0].clone()
    wrong[right] -= 1
    odds = (logits - logits[:, [right]]) / temperature
    return float(a[odds[:, wrong > 0].logsumexp(1).argmin()])


@pytest.mark.parametrize("temperature", [0.05, 0.03, 0.01, 0.004])
def test_a_scan_finds_the_same_optimum(temperature):
    # At T <= .05 the loss and its logarithm's leading part have one minimum.
    light = light_and_heavy(THREE, temperature)[0]
    assert light == pytest.approx(scanned_light(temperature), abs=1e-4)


def test_the_limit_is_one_sixth():
    distances = [abs(scanned_light(t) - 1 / 6) for t in (0.01, 0.004, 0.001, 0.0003)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 2e-4
    # The paper prints (4 - sqrt 6)/10 = .155.
    assert abs(scanned_light(0.0003) - (4 - 6**0.5) / 10) > 0.01


def test_above_the_threshold_a_pair_is_dropped():
    below, above = (light_and_heavy(THREE, t) for t in (0.08, 0.09))
    assert below[0] > 0.05
    assert above == pytest.approx([0, 0, 0.5, 0.5], abs=1e-3)


def test_the_optimum_is_a_minimum():
    forms = quadratic_forms(2)
    best = optimal_attention(THREE, 2, temperature=0.05)
    source = generator(0, "near")
    noise = torch.randn(2000, 6, generator=source, dtype=torch.float64)
    scale = torch.logspace(-3, 1, 2000, dtype=torch.float64)[:, None]
    near = ((best + 1e-12).log() + scale * noise).softmax(1)
    counts = THREE.expand(2000, -1)
    losses = relation_loss(near, counts, forms, temperature=0.05)
    least = relation_loss(best[None], THREE, forms, temperature=0.05)
    assert float(losses.min()) >= float(least) - 1e-9


def curvature(direction, temperature):
    theta = torch.tensor([0.0, 0, 0, 0, -60, -60], dtype=torch.float64)
    along = torch.tensor(direction, dtype=torch.float64) / 2

    def loss(step):
        v = (theta + step * along).softmax(0)
        return relation_loss(
            v[None], THREE, quadratic_forms(2), temperature=temperature
        )[0]

    start = torch.zeros((), dtype=torch.float64)
    return float(torch.autograd.functional.hessian(loss, start))


@pytest.mark.parametrize("temperature", [0.05, 0.03, 0.02])
def test_the_curvature_of_the_saddle_is_autograds(temperature):
    measured = curvature([1, 1, -1, -1, 0, 0], temperature)
    assert saddle_curvature(temperature) == pytest.approx(measured, rel=1e-6)


def test_the_curvature_at_the_papers_temperature():
    assert saddle_curvature(0.05) == pytest.approx(-2.0593, abs=1e-4)
    assert printed_saddle_curvature(0.05) == pytest.approx(-2.4968, abs=1e-4)
    assert curvature([1, -1, -1, 1, 0, 0], 0.05) == pytest.approx(2.94, abs=0.01)
