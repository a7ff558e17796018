from itertools import permutations

import pytest
import torch

from trained.recall.relations import affine_table, all_bijections, random_table
from trained.seeding import generator


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
