"""Arms have what their claims need, share what they should, and learn."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trained.lego.action import action
from trained.lego.arms import (
    BASE,
    MASKS,
    Weighted,
    arms,
    group_arm,
    jump_length,
    round_name,
    saved_step,
    self_arm,
)
from trained.lego.config import Config, Folded, SelfTraining, Theory, Trial
from trained.lego.model import Branches
from trained.lego.presets import PRESETS
from trained.lego.task import table_of
from trained.store import Run
from trained.trainer import Engine
from trained.training import restore, train

TINY = Config(
    groups=("C3", "S3"),
    n_variables=24,
    lengths=(5, 10, 20),
    folded=Folded(d_mlp=32, ffn_steps=400, budgets=(20, 120), steps=120),
    self_training=SelfTraining(lengths=(10,), steps=5),
    theory=Theory(groups=()),
    test=Trial(n_sentences=10),
)


@pytest.mark.parametrize("config", [TINY, *(p.config for p in PRESETS.values())])
def test_names_are_unique(config: Config) -> None:
    names = [arm.name for arm in arms(config)]
    assert len(set(names)) == len(names)


def test_twins_of_what_the_paper_speaks_of() -> None:
    theory = Theory(groups=("C3", "S3"), feature_groups=(), n_variables=24, length=10)
    names = {arm.name for arm in arms(replace(TINY, theory=theory, twins=True))}
    assert {name for name in names if name.endswith("-shuffled")} == {
        "theory-C3-shuffled",
        "theory-S3-shuffled",
        "theory-features-C3-shuffled",
        "theory-features-S3-shuffled",
    }


def test_without_groups_there_is_no_folded_model() -> None:
    none, some = (
        {a.name for a in arms(replace(TINY, groups=g))} for g in ((), ("C3",))
    )
    assert some - none == {"C3", "C3-self"}


def test_which_group_trains_itself() -> None:
    assert TINY.self_group == "S3"
    assert replace(TINY, groups=("C3",)).self_group == "C3"
    assert replace(TINY, self_training=SelfTraining(lengths=())).self_group is None
    assert jump_length(TINY) == 20
    assert jump_length(replace(TINY, n_variables=21, lengths=(5,))) == 20
    rounds = SelfTraining(lengths=(15,))
    assert jump_length(replace(TINY, self_training=rounds)) is None


def test_both_arms_of_a_group_have_the_same_ffn() -> None:
    one, other = group_arm(TINY, "S3"), self_arm(TINY, "S3")
    first, second = one.build(3).state_dict(), other.build(3).state_dict()
    shared = [name for name in first if name.startswith("model.")]
    assert shared
    assert all(torch.equal(first[name], second[name]) for name in shared)
    assert torch.equal(
        one.stages[0].data(3, 7).actions, other.stages[0].data(3, 7).actions
    )


def test_rounds_see_as_many_queries_as_the_first_length() -> None:
    stages = {stage.name: stage for stage in self_arm(TINY, "S3").stages}
    base, longer = stages[BASE].data(0, 0), stages[round_name(10)].data(0, 0)
    assert base.actions.numel() == longer.actions.numel() == 128 * 5


def test_masks_choose_equally_many_steps_that_fit() -> None:
    config = replace(TINY, folded=replace(TINY.folded, masked_steps=3))
    arm = group_arm(config, "S3")
    stages = {stage.name: stage for stage in arm.stages}
    drawn = {mask: stages[mask].data(0, 0) for mask in MASKS}
    table = table_of(action("S3"))
    counts = set()
    for mask, data in drawn.items():
        assert isinstance(data, Weighted)
        counts.add(int(data.weight.sum()))
        found = data.sentences.distractors(table).any(-1)
        chosen = found[data.weight.bool()]
        if mask != "any":
            assert (chosen == (mask == "with")).all()
    assert len(counts) == 1


def test_the_tiny_study_learns(tmp_path: Path) -> None:
    run = Run.create(tmp_path, {"study": "lego", "config": {}, "seeds": [0]})
    arm = group_arm(TINY, "C3")
    train(run, [arm], engine=Engine())
    seen = run.metrics(arm.name)
    assert seen["value_loss"][0, -1] < 0.1
    assert seen["predicate"][0, -1] + seen["answer"][0, -1] > 0.9
    early, late = (
        restore(run, arm, 0, step=saved_step(TINY, budget)) for budget in (20, 120)
    )
    assert isinstance(early, Branches)
    assert isinstance(late, Branches)
    excess = [
        model.single("main").tables.Q43.detach().diagonal(dim1=1, dim2=2).mean()
        for model in (early, late)
    ]
    assert 0 < excess[0] < excess[1]
