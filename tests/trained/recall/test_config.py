from dataclasses import replace

import pytest

from trained.config import as_dict, from_dict, override
from trained.errors import BadInput
from trained.recall.config import (
    PAPER,
    PRESETS,
    QUICK,
    Config,
    is_prime_power,
    prime_base,
)


@pytest.mark.parametrize("config", [QUICK, PAPER])
def test_a_config_survives_its_json(config):
    assert from_dict(Config, as_dict(config)) == config


def test_the_presets_are_the_paper_sizes():
    assert (PAPER.n_subjects, PAPER.n_relations, PAPER.n_examples) == (8, 64, 2)
    assert PAPER.temperature == 0.05
    assert PRESETS["paper"].n_seeds == 10
    assert PRESETS["quick"].config == QUICK


def test_the_few_prompts_are_eight_where_eight_are_run():
    assert QUICK.few_prompts == PAPER.few_prompts == 8
    assert replace(QUICK, sample_sizes=(2, 5)).few_prompts == 5


def test_prime_powers_and_their_bases():
    found = [n for n in range(2, 28) if is_prime_power(n)]
    assert found == [2, 3, 4, 5, 7, 8, 9, 11, 13, 16, 17, 19, 23, 25, 27]
    assert [prime_base(n) for n in (7, 8, 9, 12, 25)] == [7, 2, 3, 0, 5]
    assert not is_prime_power(1)


@pytest.mark.parametrize(
    "assignments",
    [
        ["n_subjects=6"],
        ["n_subjects=2", "n_relations=2"],
        ["theorem_subjects=8,10"],
        ["theorem_subjects="],
        ["n_examples=1"],
        ["n_examples=5"],
        ["n_subjects=3", "n_relations=6", "n_examples=3"],
        ["n_subjects=3", "n_relations=7"],
        ["n_relations=1"],
        ["temperature=0"],
        ["warmup_temperatures="],
        ["low_temperatures=-0.1"],
        ["sample_tables=2"],
        ["sample_tables=other"],
        ["sample_modes=half"],
        ["sample_sizes=0,8"],
        ["full_steps=0"],
        ["triple_steps=-1"],
        ["pretrained_steps=-1"],
        ["n_test=10"],
    ],
)
def test_impossible_sizes_are_refused(assignments):
    with pytest.raises(BadInput):
        override(QUICK, assignments)


@pytest.mark.parametrize(
    "assignments",
    [
        # 64 distinct bijections of four subjects, 512 of five: there are not as many,
        # and drawing them would never end.
        ["sample_tables=4"],
        ["n_subjects=5", "n_relations=20", "triple_steps=1"],
        ["n_subjects=5", "n_relations=20", "pretrained_steps=1"],
    ],
)
def test_tables_with_more_rows_than_bijections_are_refused(assignments):
    with pytest.raises(BadInput):
        override(QUICK, assignments)


@pytest.mark.parametrize(
    "assignments",
    [
        ["n_subjects=3", "n_relations=6"],
        ["n_subjects=5", "n_relations=120", "n_examples=4"],
        ["n_subjects=16", "n_examples=3"],
        ["sample_tables=affine,5"],
        ["triple_steps=1"],
    ],
)
def test_small_and_large_sizes_are_allowed(assignments):
    assert override(QUICK, assignments) != QUICK
