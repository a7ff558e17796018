import math

import pytest
import torch
from torch.nn import functional as F

from circuits.hooks import intervene
from circuits.sites import Site
from trained.recall import setting
from trained.recall.patterns import (
    answer_loss,
    matchings,
    pattern_counts,
    pattern_of_relation,
    quadratic_forms,
    relation_accuracy,
    relation_logits,
    relation_loss,
    right_pattern,
)
from trained.recall.prompts import Vocabulary, bayes_ceiling, draw_prompts
from trained.recall.relations import affine_table, all_bijections, random_table
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
    return draw_prompts(table_named(name), k, count, generator=generator(0, "prompts"))


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
    counts = pattern_counts(draw_prompts(table, 2, 30, generator=generator(0, "p")))
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
    model = setting.constructed_model(prompts.table, k, 0, dtype=torch.float64)
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
    model = setting.constructed_model(prompts.table, k, 0, dtype=torch.float64)
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
