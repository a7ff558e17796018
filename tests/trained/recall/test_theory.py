import math

import pytest
import torch
from torch.nn import functional as F

from circuits.hooks import intervene
from circuits.sites import Site
from trained.recall.model import constructed_model
from trained.recall.slopes import (
    lead,
    ratio_rises,
)
from trained.recall.task import (
    Vocabulary,
    affine_table,
    all_bijections,
    bayes_ceiling,
    draw_episodes,
    random_table,
)
from trained.recall.theory import (
    answer_loss,
    hessian,
    matchings,
    optimal_attention,
    pattern_counts,
    pattern_of_relation,
    printed_saddle_curvature,
    quadratic_forms,
    relation_accuracy,
    relation_logits,
    relation_loss,
    right_pattern,
    saddle_curvature,
)
from trained.seeding import generator

CASES = [
    ("random 8", 2),
    ("affine 8", 2),
    ("all 3", 2),
    ("random 8", 3),
    ("affine 5", 3),
]


def table_named(name):
    kind, n = name.split()
    source = generator(0, name)
    if kind == "affine":
        return affine_table(int(n), generator=source)
    return all_bijections(3) if kind == "all" else random_table(8, 64, generator=source)


def drawn(name, k, count=40):
    return draw_episodes(table_named(name), k, count, generator=generator(0, "prompts"))


def attentions(count, length):
    source = generator(0, "attention")
    scores = torch.randn(count, length, generator=source, dtype=torch.float64)
    return scores.softmax(-1)


def test_partial_matchings_are_counted():
    assert [len(matchings(k)) for k in (1, 2, 3, 4)] == [3, 13, 73, 501]
    assert matchings(2)[0] == ()
    assert matchings(2)[right_pattern(2)] == ((0, 0), (1, 1))


@pytest.mark.parametrize(("name", "k"), CASES)
def test_patterns_are_what_relations_map(name, k):
    prompts = drawn(name, k, 10)
    which = pattern_of_relation(prompts)
    for b in range(10):
        subjects, answers = prompts.subjects[b].tolist(), prompts.answers[b].tolist()
        for index, relation in enumerate(prompts.table.tolist()):
            pairs = [
                (i, j)
                for i, s in enumerate(subjects)
                for j in range(k)
                if relation[s] == answers[j]
            ]
            assert matchings(k)[which[b, index]] == tuple(pairs)
    counts = pattern_counts(prompts)
    assert (counts.sum(1) == len(prompts.table)).all()
    own = which.gather(1, prompts.relation[:, None])
    assert (own == right_pattern(k)).all()


@pytest.mark.parametrize("n", [3, 4, 5, 8, 9, 16])
def test_affine_prompts_have_six_two_matching_relations(n):
    table = affine_table(n, generator=generator(0, "affine"))
    counts = pattern_counts(draw_episodes(table, 2, 30, generator=generator(0, "p")))
    sizes = torch.tensor([len(pattern) for pattern in matchings(2)])
    assert (counts[:, sizes == 2] == 1).all()
    assert (counts[:, sizes == 1].sum(1) == 6 * (n - 3)).all()
    assert (counts == counts[0]).all()


def test_uniform_attention_gives_the_papers_logits():
    uniform = torch.full((6,), 1 / 6, dtype=torch.float64)
    logits = relation_logits(uniform, quadratic_forms(2))
    expected = {2: 1 / 4, 1: 7 / 36, 0: 5 / 36}
    wanted = [expected[len(pattern)] for pattern in matchings(2)]
    assert logits.tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(("name", "k"), CASES)
def test_the_loss_is_the_real_models(name, k):
    prompts = drawn(name, k)
    words = Vocabulary.of(prompts.table)
    model = constructed_model(prompts.table, k, 0, dtype=torch.float64)
    v = attentions(40, 2 * k + 2)
    with intervene(model, {Site("pattern"): lambda _: v[:, None, None]}):
        logits = model(prompts.relation_step().tokens)[:, 0, words.relations]
    expected = F.cross_entropy(logits / 0.05, prompts.relation, reduction="none")
    loss = relation_loss(
        v, pattern_counts(prompts), quadratic_forms(k), temperature=0.05
    )
    assert torch.allclose(loss, expected, atol=1e-9)


@pytest.mark.parametrize(("name", "k"), CASES)
def test_the_answers_loss_is_the_real_models(name, k):
    prompts = drawn(name, k, 12)
    words = Vocabulary.of(prompts.table)
    model = constructed_model(prompts.table, k, 0, dtype=torch.float64)
    q = attentions(1, 2 * k + 3)[0]
    edit = {Site("pattern"): lambda pattern: q.expand_as(pattern)}
    with intervene(model, edit):
        logits = model(prompts.answer_step().tokens)[:, 0, words.answers]
    targets = prompts.answers[:, -1]
    expected = F.cross_entropy(logits / 0.05, targets, reduction="none")
    loss = answer_loss(q, n_subjects=words.n_subjects, temperature=0.05)
    assert torch.allclose(loss.expand(12), expected, atol=1e-9)


def test_the_gradient_at_zero_with_three_subjects():
    t = 0.05
    counts = pattern_counts(drawn("all 3", 2, 1))
    v = torch.full((1, 6), 1 / 6, dtype=torch.float64, requires_grad=True)
    loss = relation_loss(v, counts, quadratic_forms(2), temperature=t).sum()
    (g,) = torch.autograd.grad(loss, v)
    assert loss.item() == pytest.approx(math.log(6))
    wanted = [x / (9 * t) for x in (-1, 0, -1, 0, 2, 0)]
    assert g[0].tolist() == pytest.approx(wanted)


def test_the_gradient_in_theta_is_the_papers():
    t = 0.05
    counts = pattern_counts(drawn("all 3", 2, 1))
    theta = torch.zeros(1, 6, dtype=torch.float64, requires_grad=True)
    v = theta.softmax(1)
    loss = relation_loss(v, counts, quadratic_forms(2), temperature=t).sum()
    (slope,) = torch.autograd.grad(loss, theta)
    g = torch.tensor([-1, 0, -1, 0, 2, 0], dtype=torch.float64) / (9 * t)
    uniform = torch.full((6,), 1 / 6, dtype=torch.float64)
    assert torch.allclose(slope[0], uniform * (g - uniform @ g), atol=1e-12)


@pytest.mark.parametrize(("n", "t"), [(3, 0.05), (8, 0.05), (8, 0.004)])
def test_the_second_steps_gradient_at_zero(n, t):
    omega = torch.zeros(7, dtype=torch.float64, requires_grad=True)
    loss = answer_loss(omega.softmax(0), n_subjects=n, temperature=t)
    (slope,) = torch.autograd.grad(loss, omega)
    # At uniform attention the prompt's three answers share one probability.
    p = math.exp(-loss.item())
    s, a = 58 * p + 18, -54 * p + 18
    wanted = [s, a, s, a, 58 * p - 94, a, -12 * p + 4]
    assert slope.tolist() == pytest.approx([x / (343 * t) for x in wanted])


def test_accuracy_splits_ties():
    prompts = drawn("affine 8", 2)
    counts, forms = pattern_counts(prompts), quadratic_forms(2)

    def accuracy(*v):
        row = torch.tensor([v], dtype=torch.float64)
        return relation_accuracy(row, counts, forms, tolerance=1e-6).tolist()

    sixth = 1 / 6
    assert accuracy(*[sixth] * 6) == pytest.approx([1 / 6] * 40)
    assert accuracy(0.25, 0.25, 0.25, 0.25, 0, 0) == pytest.approx([1 / 2] * 40)
    assert accuracy(0.18, 0.18, 0.32, 0.32, 0, 0) == [1.0] * 40
    assert accuracy(0.32, 0.18, 0.18, 0.32, 0, 0) == [0.0] * 40
    assert accuracy(0, 0, 0.5, 0.5, 0, 0) == pytest.approx([1 / 7] * 40)
    assert accuracy(0.5, 0, 0.5, 0, 0, 0) == pytest.approx([1 / 56] * 40)


def test_a_clean_pairwise_pattern_reaches_the_ceiling_and_no_more():
    prompts = drawn("random 8", 2, 500)
    counts, forms = pattern_counts(prompts), quadratic_forms(2)
    clean = torch.tensor([[0.18, 0.18, 0.32, 0.32, 0, 0]], dtype=torch.float64)
    at_best = relation_accuracy(clean, counts, forms, tolerance=1e-6).mean()
    assert float(at_best) == pytest.approx(bayes_ceiling(prompts), abs=1e-6)
    for row in attentions(50, 6):
        other = relation_accuracy(row[None], counts, forms, tolerance=1e-6).mean()
        assert float(other) <= bayes_ceiling(prompts) + 1e-6


def counts_of(table, k=2, count=1):
    return pattern_counts(draw_episodes(table, k, count, generator=generator(0, "p")))


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


SADDLE = torch.tensor([0.0, 0, 0, 0, -60, -60], dtype=torch.float64)
ALONG = torch.tensor([1.0, 1, -1, -1, 0, 0], dtype=torch.float64) / 2
ACROSS = torch.tensor([1.0, -1, -1, 1, 0, 0], dtype=torch.float64) / 2


def bend(theta, direction, temperature):
    matrix = hessian(theta, THREE, temperature=temperature)
    assert torch.allclose(matrix, matrix.T)
    return float(direction @ matrix @ direction)


@pytest.mark.parametrize("temperature", [0.05, 0.03, 0.02])
def test_the_curvature_of_the_saddle_is_autograds(temperature):
    measured = bend(SADDLE, ALONG, temperature)
    assert saddle_curvature(temperature) == pytest.approx(measured, rel=1e-6)


def test_the_curvature_at_the_papers_temperature():
    assert saddle_curvature(0.05) == pytest.approx(-2.0593, abs=1e-4)
    assert printed_saddle_curvature(0.05) == pytest.approx(-2.4968, abs=1e-4)
    across = bend(SADDLE, ACROSS, 0.05)
    assert across == pytest.approx(2.94, abs=0.01)


def test_the_curvature_of_a_minimum_is_positive():
    best = optimal_attention(THREE, 2, temperature=0.05).clamp_min(1e-26).log()
    for direction in (ALONG, ACROSS):
        assert bend(best, direction, 0.05) > 0


def test_the_ratio_falls_where_lemma_8_says_so_and_may_rise_elsewhere():
    noise = torch.rand(20_000, 4, generator=generator(0, "v"), dtype=torch.float64)
    theta = torch.cat([(-noise.log()).log(), torch.full((20_000, 2), -60.0)], 1)
    rises = ratio_rises(theta, THREE, temperature=0.05)
    condition = lead(theta, THREE, temperature=0.05) > 0
    assert int(condition.sum()) > 5000
    assert int((~condition).sum()) > 500
    assert not bool(rises[condition].any())
    assert bool(rises[~condition].any())
    uniform = torch.zeros(1, 6, dtype=torch.float64)
    assert lead(uniform, THREE, temperature=0.05).tolist() == [0]


def test_several_temperatures_at_once():
    heat = torch.tensor([0.05, 0.01], dtype=torch.float64)
    attention = attentions(2, 7)
    together = answer_loss(attention, n_subjects=8, temperature=heat[:, None])
    alone = [
        answer_loss(v, n_subjects=8, temperature=float(t))
        for v, t in zip(attention, heat, strict=True)
    ]
    assert torch.allclose(together, torch.stack(alone))
    # With three subjects every answer is shown: no other one takes a share.
    whole = answer_loss(attention[0], n_subjects=3, temperature=0.05)
    logits = 2 * (1 + attention[0, -1]) * attention[0, 0:-2:2] / 0.05
    assert float(whole) == pytest.approx(float(logits.logsumexp(0) - logits[-1]))
