import pytest

from trained.config import as_dict, from_dict, override
from trained.errors import BadInput
from trained.recall.config import (
    PAPER,
    PRESETS,
    QUICK,
    Config,
    Samples,
    is_prime_power,
    prime_base,
)
from trained.recall.theory_config import Few


@pytest.mark.parametrize("config", [QUICK, PAPER])
def test_a_config_survives_its_json(config):
    assert from_dict(Config, as_dict(config)) == config


def test_the_presets_are_the_paper_sizes():
    assert (PAPER.n_subjects, PAPER.n_relations, PAPER.n_examples) == (8, 64, 2)
    assert PAPER.temperature == 0.05
    assert PRESETS["paper"].n_seeds == 10
    assert PRESETS["quick"].config == QUICK


def test_the_few_prompts_are_eight_where_eight_are_run():
    assert QUICK.samples.few == PAPER.samples.few == 8
    assert Samples(sizes=(2, 5)).few == 5
    assert QUICK.few.most == PAPER.few.most == 32
    assert Few(sizes=(1, 8)).most == 8


def test_groups_are_reached_by_their_keys():
    changed = override(QUICK, ["warmup.steps=50", "triple.temperature=0.02"])
    assert (changed.warmup.steps, changed.triple.temperature) == (50, 0.02)


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
        ["n_examples=1"],
        ["n_examples=5"],
        ["n_subjects=3", "n_relations=6", "n_examples=3"],
        ["n_subjects=3", "n_relations=7"],
        ["n_relations=1"],
        ["temperature=0"],
        ["warmup.temperatures="],
        ["few.temperatures=-0.1"],
        ["few.temperatures=2"],
        ["few.share=1.5"],
        ["few.subjects=6"],
        ["few.sizes=0,8"],
        ["few.subjects="],
        ["rate.temperatures=0.01,0.01"],
        ["rate.subjects=10"],
        ["first_step.prompts=0"],
        ["first_step.subjects=6"],
        ["partial.quarter=12"],
        ["partial.sizes="],
        ["partial.subjects=2"],
        ["direct_steps=0"],
        ["warmup.draws=0"],
        ["warmup.draws=51"],
        ["warmup.hot=0.08"],
        ["warmup.temperatures=0.2"],
        ["warmup.steps=15"],
        ["warmup.escape_steps=0"],
        ["warmup.temperatures=0.05,0.05"],
        ["samples.subjects=2"],
        ["samples.subjects=8,8"],
        ["samples.modes=half"],
        ["samples.sizes=0,8"],
        ["full_steps=0"],
        ["samples.temperatures="],
        ["samples.spreads=0.1,0.1"],
        ["triple.steps=-1"],
        ["triple.hot=0"],
        ["pretrained.steps=-1"],
        ["pretrained.readings=cold"],
        ["pretrained.widths="],
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
        ["samples.subjects=4"],
        ["n_subjects=5", "n_relations=20", "triple.steps=1"],
        ["n_subjects=5", "n_relations=20", "pretrained.triple_steps=1"],
        ["partial.subjects=4"],
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
        ["samples.subjects=5"],
        ["triple.steps=1"],
    ],
)
def test_small_and_large_sizes_are_allowed(assignments):
    assert override(QUICK, assignments) != QUICK
