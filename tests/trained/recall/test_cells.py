import pytest
import torch

from trained.errors import BadInput
from trained.recall.cells import Cell, confusing_counts, labelled, stacked_counts
from trained.recall.task import (
    all_bijections,
    all_episodes,
    confusing_relations,
    draw_episodes,
    mismatched,
    shuffle_copies,
    unseen_episodes,
)
from trained.recall.theory import (
    matchings,
    pattern_counts,
    pattern_of_relation,
    right_pattern,
)
from trained.seeding import generator

QUARTER = Cell(8, 32, 0, 0.002, share=0.25)


def test_a_quarter_of_the_table_makes_prompts_differ():
    """On the whole affine table every prompt has the same loss, so N cannot matter."""
    whole = Cell(8, 32, 0, 0.002)
    assert len(stacked_counts([whole], 1)[0].unique(dim=0)) == 1
    assert len(stacked_counts([QUARTER], 1)[0].unique(dim=0)) > 5
    assert len(QUARTER.table(1)) == 14


def test_prompts_that_are_tested_were_not_learned_from():
    """Before, an unseen prompt could be one of the training set."""
    small = Cell(5, 40, 0, 0.002)
    seen, tests = small.prompts(1), small.tests(1, 500)
    assert len(tests.relation) == 500
    assert not torch.isin(tests.codes, seen.codes).any()
    careless = unseen_episodes(small.table(1), 2, 500, 1000)
    assert torch.isin(careless.codes, seen.codes).any()


def test_nothing_is_left_to_test_on_where_all_was_seen():
    every = all_episodes(all_bijections(3), 2)
    assert len(every.codes.unique()) == 36
    with pytest.raises(BadInput, match="36 prompts leave too few"):
        unseen_episodes(every.table, 2, 10, 0, seen=every)


def test_draws_differ_and_are_drawn_from_seed_and_index_alone():
    same, other = Cell(8, 4, 3, 0.002), Cell(8, 4, 4, 0.002)
    assert torch.equal(same.table(2), Cell(8, 16, 3, 0.001).table(2))
    assert not torch.equal(same.table(2), other.table(2))
    assert not torch.equal(same.table(2), same.table(3))
    norms = [cell.perturbation(2).norm() for cell in (same, other)]
    assert max(norms) <= 0.002**3
    assert norms[0] != norms[1]


def test_plain_prompts_are_never_confusing():
    plain = Cell(8, 32, 0, 0.002, share=0.25, plain=True)
    prompts = plain.prompts(1)
    assert len(prompts.relation) == 32
    assert not confusing_relations(prompts).any()
    assert confusing_relations(QUARTER.prompts(1)).any()
    right, swapped = right_pattern(2), matchings(2).index(((0, 1), (1, 0)))
    counts = confusing_counts([plain], 1)[0]
    assert (counts[:, swapped] == 1).all()
    assert (counts[:, right] == 1).all()


def test_stage_two_is_as_long_as_the_theorem_says():
    # 20 / .002 * log(500) = 62146.08
    assert QUARTER.steps(20.0) == 62147


def test_few_prompts_are_repeated_so_that_their_mean_stays():
    one, four = Cell(8, 1, 0, 0.002), Cell(8, 4, 0, 0.002)
    stacked = stacked_counts([one, four], 1)
    assert stacked.shape == (2, 4, 13)
    own = pattern_counts(one.prompts(1)).double()
    assert torch.equal(stacked[0].mean(0), own.mean(0))


def test_permuted_copies_are_asked_for_other_prompts_answers():
    cells = [Cell(6, 8, d, 0.05, kind="random", relations=12) for d in (0, 1)]
    data = labelled(cells, 1)
    order = torch.randperm(8, generator=generator(0, "order"))
    found = shuffle_copies(data, generator(0, "order"))
    for index, cell in enumerate(cells):
        prompts = cell.prompts(1)
        patterns = pattern_of_relation(prompts)
        wanted = patterns.gather(1, prompts.relation[order][:, None])[:, 0]
        assert torch.equal(found["pattern"][index], wanted)
        asked = prompts.answers[order, -1]
        for row, column in enumerate(found["answer"][index].tolist()):
            own = prompts.answers[row].tolist()
            shown = own.index(asked[row]) if asked[row] in own else 3
            assert column == shown


def test_mismatched_prompts_by_brute_force():
    source = generator(0, "mismatched")
    table = Cell(8, 1, 0, 0.05, share=0.25).table(5)
    episodes = draw_episodes(table, 2, 200, generator=source)
    found = mismatched(episodes)
    for row in range(200):
        s, a = episodes.subjects[row].tolist(), episodes.answers[row].tolist()
        expected = any(
            (r[s[2]] == a[j] and a[1 - j] in (r[s[0]], r[s[1]]))
            for r in table.tolist()
            for j in (0, 1)
        )
        assert bool(found[row]) == expected
    assert 0.4 < float(found.double().mean()) < 0.9
