from itertools import permutations

import pytest
import torch

from trained.recall.task import (
    Episodes,
    Vocabulary,
    affine_table,
    all_bijections,
    bayes_ceiling,
    confusing_relations,
    consistent_relations,
    draw_episodes,
    draw_facts,
    random_table,
    relation_table,
)
from trained.seeding import generator

WORKED = Episodes(all_bijections(3), torch.tensor([0]), torch.tensor([[0, 1, 2]]))
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


def test_the_worked_example_has_one_confusing_relation():
    assert confusing_relations(WORKED).nonzero().tolist() == [[0, SWAP]]
    assert consistent_relations(WORKED).nonzero().tolist() == [[0, 0]]


def test_roles_name_the_positions():
    roles = WORKED.answer_step().roles
    assert {name: where.tolist() for name, where in roles.items()} == {
        "subjects": [[0, 2]],
        "answers": [[1, 3]],
        "subject0": [[0]],
        "answer0": [[1]],
        "subject1": [[2]],
        "answer1": [[3]],
        "query": [[4]],
        "end": [[5]],
        "relation": [[6]],
    }
    assert "relation" not in WORKED.relation_step().roles


@pytest.mark.parametrize("k", [2, 3, 4])
def test_drawn_prompts_follow_their_relation(k):
    table = random_table(8, 64, generator=generator(0, "table"))
    prompts = draw_episodes(table, k, 300, generator=generator(0, "prompts"))
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
    prompts = draw_episodes(table, 2, 10, generator=generator(0, "prompts"))
    chosen = torch.arange(10) % 2 == 0
    kept = prompts.where(chosen)
    assert torch.equal(kept.relation, prompts.relation[::2])
    assert torch.equal(kept.relation_step().tokens, prompts.relation_step().tokens[::2])


def brute_force(episodes, number):
    """(consistent, confusing) relations of one prompt, by definition."""
    s1, s2, _ = episodes.subjects[number].tolist()
    a1, a2, _ = episodes.answers[number].tolist()
    consistent, confusing = [], []
    for index, relation in enumerate(episodes.table.tolist()):
        if relation[s1] == a1 and relation[s2] == a2:
            consistent.append(index)
        if relation[s1] == a2 and relation[s2] == a1:
            confusing.append(index)
    return consistent, confusing


@pytest.mark.parametrize(("n", "m"), [(4, 20), (8, 64), (16, 64)])
def test_types_and_ceiling_by_brute_force(n, m):
    table = random_table(n, m, generator=generator(0, "table"))
    prompts = draw_episodes(table, 2, 80, generator=generator(0, "prompts"))
    functions = (consistent_relations, confusing_relations)
    found = [f(prompts) for f in functions]
    ceiling = 0.0
    for number in range(80):
        expected = brute_force(prompts, number)
        for mask, indices in zip(found, expected, strict=True):
            assert mask[number].nonzero()[:, 0].tolist() == indices
        ceiling += 1 / len(expected[0]) / 80
    assert bayes_ceiling(prompts) == pytest.approx(ceiling, abs=1e-6)


@pytest.mark.parametrize("n", [3, 5, 8])
def test_every_affine_prompt_is_confusing(n):
    table = affine_table(n, generator=generator(0, "affine"))
    prompts = draw_episodes(table, 2, 200, generator=generator(0, "prompts"))
    assert (confusing_relations(prompts).sum(1) == 1).all()
    assert bayes_ceiling(prompts) == 1


def test_the_ceiling_with_three_examples_of_many_relations():
    table = random_table(8, 512, generator=generator(0, "table"))
    prompts = draw_episodes(table, 3, 1000, generator=generator(0, "prompts"))
    assert bayes_ceiling(prompts) == pytest.approx(0.514, abs=0.05)


def is_bijective(table):
    n = table.shape[1]
    return bool((table.sort(1).values == torch.arange(n)).all())


def test_all_bijections_are_in_lexicographic_order():
    expected = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    assert all_bijections(3).tolist() == expected


@pytest.mark.parametrize("n", [3, 4, 5, 7, 8, 9, 16])
def test_two_pairs_fit_exactly_one_affine_relation(n):
    table = affine_table(n, generator=generator(0, "affine", n))
    assert table.shape == (n * (n - 1), n)
    assert is_bijective(table)
    # Every (s1, a1, s2, a2) with distinct subjects and answers is reached once.
    subjects = torch.tensor(list(permutations(range(n), 2)))
    for first, second in subjects.tolist():
        code = table[:, first] * n + table[:, second]
        expected = [a * n + b for a, b in permutations(range(n), 2)]
        assert code.sort().values.tolist() == expected


def test_the_affine_table_of_three_is_all_bijections():
    table = affine_table(3, generator=generator(1, "affine"))
    assert sorted(table.tolist()) == all_bijections(3).tolist()


def test_affine_tables_are_relabelled_by_the_seed():
    one, again, other = (
        affine_table(8, generator=generator(seed, "affine")) for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    # Not only the order of the rows: as sets of maps they differ as well.
    assert sorted(one.tolist()) != sorted(other.tolist())


@pytest.mark.parametrize(("n", "m"), [(3, 6), (4, 24), (5, 20), (8, 64), (8, 512)])
def test_a_random_table_holds_distinct_bijections(n, m):
    table = random_table(n, m, generator=generator(0, "random"))
    assert table.shape == (m, n)
    assert is_bijective(table)
    assert len(table.unique(dim=0)) == m


def test_random_rows_are_uniform():
    source = generator(0, "uniform")
    first = [random_table(3, 1, generator=source)[0].tolist() for _ in range(1200)]
    shares = [first.count(row) / 1200 for row in all_bijections(3).tolist()]
    # 1/6 with a standard error of .011.
    assert all(abs(share - 1 / 6) < 0.045 for share in shares)


def test_tables_depend_on_the_seed():
    one, again, other = (relation_table("random", 8, 64, seed) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert relation_table("affine", 8, 0, 3).shape == (56, 8)


def test_facts_leave_out_each_token_equally_often():
    table = relation_table("random", 7, 20, 0)
    batch = draw_facts(table, 3000, generator=generator(0, "facts"))
    tokens = torch.cat([batch.tokens, batch.targets[:, None]], 1)
    subject, answer, relation = tokens.sort(1).values.unbind(1)
    assert torch.equal(table[relation - 14, subject], answer - 7)
    kinds = (batch.targets >= 7).long() + (batch.targets >= 14).long()
    shares = kinds.bincount(minlength=3) / 3000
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=0.04)
    assert int(tokens.max()) < Vocabulary.of(table).end
    first = (batch.tokens[:, 0] < batch.tokens[:, 1]).double().mean()
    assert float(first) == pytest.approx(0.5, abs=0.04)
