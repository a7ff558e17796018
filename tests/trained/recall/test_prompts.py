import pytest
import torch

from trained.recall.prompts import (
    Prompts,
    Vocabulary,
    bayes_ceiling,
    confusing_relations,
    consistent_relations,
    draw_prompts,
    mismatched_relations,
)
from trained.recall.relations import affine_table, all_bijections, random_table
from trained.seeding import generator

WORKED = Prompts(all_bijections(3), torch.tensor([0]), torch.tensor([[0, 1, 2]]))
SWAP = 2
"""Row of `all_bijections(3)` that maps 0 -> 1, 1 -> 0, 2 -> 2."""


def test_the_vocabulary_is_subjects_answers_relations_end():
    words = Vocabulary.of(all_bijections(3))
    tokens = list(range(words.size))
    assert tokens[words.answers] == [3, 4, 5]
    assert tokens[words.relations] == [6, 7, 8, 9, 10, 11]
    assert words.end == 12


def test_the_worked_example():
    first, second = WORKED.relation_step(), WORKED.answer_step()
    assert first.tokens.tolist() == [[0, 3, 1, 4, 2, 12]]
    assert first.targets.tolist() == [6]
    assert second.tokens.tolist() == [[0, 3, 1, 4, 2, 12, 6]]
    assert second.targets.tolist() == [5]


def test_the_worked_example_has_one_confusing_and_four_mismatched_relations():
    assert confusing_relations(WORKED).nonzero().tolist() == [[0, SWAP]]
    assert mismatched_relations(WORKED).nonzero()[:, 1].tolist() == [1, 3, 4, 5]
    assert consistent_relations(WORKED).nonzero().tolist() == [[0, 0]]


def test_roles_name_the_positions():
    roles = WORKED.answer_step().roles
    assert {name: where.tolist() for name, where in roles.items()} == {
        "subject": [[0, 2]],
        "answer": [[1, 3]],
        "query": [[4]],
        "end": [[5]],
        "relation": [[6]],
    }
    assert "relation" not in WORKED.relation_step().roles


@pytest.mark.parametrize("k", [2, 3, 4])
def test_drawn_prompts_follow_their_relation(k):
    table = random_table(8, 64, generator=generator(0, "table"))
    prompts = draw_prompts(table, k, 300, generator=generator(0, "prompts"))
    batch = prompts.answer_step()
    assert batch.tokens.shape == (300, 2 * k + 3)
    for row, target in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        *context, query, end, relation = row
        assert end == 2 * 8 + 64
        subjects = [*context[0::2], query]
        assert len(set(subjects)) == k + 1
        answers = [8 + int(table[relation - 16, s]) for s in subjects]
        assert [*context[1::2], target] == answers


def test_where_keeps_the_chosen_prompts():
    table = all_bijections(3)
    prompts = draw_prompts(table, 2, 10, generator=generator(0, "prompts"))
    chosen = torch.arange(10) % 2 == 0
    kept = prompts.where(chosen)
    assert torch.equal(kept.relation, prompts.relation[::2])
    assert torch.equal(kept.relation_step().tokens, prompts.relation_step().tokens[::2])


def brute_force(prompts, number):
    """(consistent, confusing, mismatched) relations of one prompt, by definition."""
    s1, s2, s3 = prompts.subjects[number].tolist()
    a1, a2, _ = prompts.answers[number].tolist()
    consistent, confusing, mismatched = [], [], []
    for index, relation in enumerate(prompts.table.tolist()):
        if relation[s1] == a1 and relation[s2] == a2:
            consistent.append(index)
        if relation[s1] == a2 and relation[s2] == a1:
            confusing.append(index)
        forms = [((s1, a1), (s3, a2)), ((s1, a2), (s3, a1))]
        forms += [((s2, a1), (s3, a2)), ((s2, a2), (s3, a1))]
        if any(all(relation[s] == a for s, a in form) for form in forms):
            mismatched.append(index)
    return consistent, confusing, mismatched


@pytest.mark.parametrize(("n", "m"), [(4, 20), (8, 64), (16, 64)])
def test_types_and_ceiling_by_brute_force(n, m):
    table = random_table(n, m, generator=generator(0, "table"))
    prompts = draw_prompts(table, 2, 80, generator=generator(0, "prompts"))
    functions = (consistent_relations, confusing_relations, mismatched_relations)
    found = [f(prompts) for f in functions]
    ceiling = 0.0
    for number in range(80):
        expected = brute_force(prompts, number)
        for mask, indices in zip(found, expected, strict=True):
            assert mask[number].nonzero()[:, 0].tolist() == indices
        ceiling += 1 / len(expected[0]) / 80
    assert bayes_ceiling(prompts) == pytest.approx(ceiling, abs=1e-6)


@pytest.mark.parametrize("n", [3, 5, 8])
def test_every_affine_prompt_is_confusing_and_mismatched(n):
    table = affine_table(n, generator=generator(0, "affine"))
    prompts = draw_prompts(table, 2, 200, generator=generator(0, "prompts"))
    assert (confusing_relations(prompts).sum(1) == 1).all()
    assert (mismatched_relations(prompts).sum(1) == 4).all()
    assert bayes_ceiling(prompts) == 1


@pytest.mark.parametrize(
    ("n", "confusing", "mismatched", "ceiling"),
    [(8, 0.679, 0.991, 0.599), (16, 0.231, 0.653, 0.879), (32, 0.062, 0.225, 0.969)],
)
def test_shares_of_random_tables_match_the_closed_forms(
    n, confusing, mismatched, ceiling
):
    m, p = 64, 1 / (n * (n - 1))
    assert 1 - (1 - p) ** (m - 1) == pytest.approx(confusing, abs=6e-4)
    assert 1 - (1 - 4 * p) ** (m - 1) == pytest.approx(mismatched, abs=6e-4)
    assert (1 - (1 - p) ** m) / (m * p) == pytest.approx(ceiling, abs=6e-4)
    shares = []
    for seed in range(10):
        table = random_table(n, m, generator=generator(seed, "table"))
        prompts = draw_prompts(table, 2, 1000, generator=generator(seed, "prompts"))
        shares.append(
            [
                float(confusing_relations(prompts).any(1).double().mean()),
                float(mismatched_relations(prompts).any(1).double().mean()),
                bayes_ceiling(prompts),
            ]
        )
    mean = torch.tensor(shares, dtype=torch.float64).mean(0).tolist()
    # R18: within .02 of the closed form as a mean of ten tables.
    assert mean == pytest.approx([confusing, mismatched, ceiling], abs=0.02)


def test_the_ceiling_with_three_examples_of_many_relations():
    table = random_table(8, 512, generator=generator(0, "table"))
    prompts = draw_prompts(table, 3, 1000, generator=generator(0, "prompts"))
    assert bayes_ceiling(prompts) == pytest.approx(0.514, abs=0.05)
