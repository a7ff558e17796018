"""Arms share what they should, differ where they should, and learn."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from trained.arm import SHUFFLED
from trained.bridge.arms import (
    arms,
    covered,
    model_of,
    permutation,
    training_facts,
)
from trained.bridge.config import (
    Config,
    Embedding,
    Gpt,
    Theory,
    embedding,
    recipes,
    tied,
    untied,
)
from trained.config import override
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

SMALL = Config(
    n_subjects=6,
    complexity=2,
    embedding=Embedding(complexities=(2,)),
    gpt=Gpt(d_model=64, n_layers=2, gamma=1.4, steps=100),
    theory=Theory(sizes=(5,)),
    variants=("tied", "random", "std"),
)


def test_every_recipe_is_an_arm() -> None:
    assert [r.name for r in recipes(SMALL)] == [arm.name for arm in arms(SMALL)]


def test_twins_train_alike_on_permuted_answers() -> None:
    found = {arm.name: arm for arm in arms(replace(SMALL, twins=True))}
    twins = [name for name in found if name.endswith(SHUFFLED)]
    assert len(found) - len(twins) == len(recipes(SMALL))
    assert len(twins) == 5
    for name in twins:
        own, twin = found[name.removesuffix(SHUFFLED)], found[name]
        facts, permuted = (arm.stages[0].data(0, 0) for arm in (own, twin))
        assert torch.equal(facts.tokens, permuted.tokens)
        assert not torch.equal(facts.targets, permuted.targets)
        assert (own.stages[0].steps, own.build) == (twin.stages[0].steps, twin.build)
    untied_only = replace(SMALL, twins=True, variants=())
    assert not [a for a in arms(untied_only) if a.name.endswith("tied-fixed-shuffled")]


def test_arms_with_and_without_identity_start_alike() -> None:
    pairs = [(untied(2), untied(2, "none")), (embedding(), embedding(1, "none"))]
    for first, second in pairs:
        one, other = (model_of(SMALL, r, 3).state_dict() for r in (first, second))
        assert all(torch.equal(one[name], other[name]) for name in one)
    different = model_of(SMALL, untied(2), 4).state_dict()
    assert not torch.equal(different["W_E"], one["W_E"])


def test_only_the_zero_hop_labels_differ_between_tasks() -> None:
    by_task = {t: training_facts(SMALL, untied(2, t), 0) for t in ("identity", "none")}
    for facts in by_task.values():
        assert torch.equal(facts.tokens, by_task["none"].tokens)
        assert torch.equal(facts.targets[:, 1], by_task["none"].targets[:, 1])
    assert (by_task["none"].targets[:, 0] == -1).all()
    assert torch.equal(by_task["identity"].targets[12:, 0], torch.arange(6, 18))


def test_doses() -> None:
    half = untied(2, "half")
    assert covered(SMALL, half, 0).sum() == 6
    labels = training_facts(SMALL, half, 0).targets[12:, 0]
    assert torch.equal(labels >= 0, covered(SMALL, half, 0))
    permuted = training_facts(SMALL, untied(2, "permuted"), 0).targets[12:, 0]
    assert torch.equal(permuted, 6 + permutation(SMALL, untied(2, "permuted"), 0))
    assert not (permuted == torch.arange(6, 18)).any()
    off = replace(SMALL, identity=0.0)
    assert (training_facts(off, untied(2), 0).targets[:, 0] == -1).all()


def test_offsets_move_from_step_to_step() -> None:
    stage = next(arm for arm in arms(SMALL) if arm.name == "gpt-k1-identity").stages[0]
    first, second = stage.data(0, 0), stage.data(0, 1)
    assert not torch.equal(first.offset, second.offset)
    assert torch.equal(first.offset, stage.data(0, 0).offset)
    assert set(first.offset.tolist()) <= {0, 1, 2}
    fixed = next(arm for arm in arms(SMALL) if arm.name == tied().name).stages[0]
    assert fixed.draw == "once"
    assert not fixed.data(0, 5).offset.any()


def test_the_heads_have_a_rate_and_a_length_of_their_own() -> None:
    config = override(SMALL, ["gpt.tied_steps=30", "gpt.tied_lr=0.01"])
    by_name = {arm.name: arm.stages[0] for arm in arms(config)}
    assert (by_name[tied().name].steps, by_name[untied().name].steps) == (30, 100)
    assert by_name[tied().name].optimiser.lr == 0.01
    assert by_name[tied().name].optimiser.warmup == 15


def test_initial_scales() -> None:
    small = model_of(SMALL, untied(), 0).state_dict()["W_E"]
    assert small.std().item() == pytest.approx(64**-1.4, rel=0.1)
    standard = model_of(SMALL, replace(untied(), std=0.02), 0).state_dict()["W_E"]
    assert standard.std().item() == pytest.approx(0.02, rel=0.1)
    assert "unembedding" not in model_of(SMALL, tied(), 0).state_dict()


def test_identity_lets_one_hop_facts_compose(tmp_path: Path) -> None:
    config = replace(SMALL, n_subjects=10)
    chosen = {"gpt-k1-identity", "gpt-k1-none"}
    chosen |= {embedding().name, embedding(1, "none").name}
    found = [arm for arm in arms(config) if arm.name in chosen]
    run = Run.create(tmp_path, {"study": "bridge", "config": {}, "seeds": [0]})
    train(run, found, engine=Engine())
    last = {name: run.metrics(name)["ood"][:, -1].mean() for name in chosen}
    learned = {name: run.metrics(name)["hop2"][:, -1].min() for name in chosen}
    assert min(learned.values()) == 1
    assert last["gpt-k1-identity"] >= 0.9
    assert last[embedding().name] >= 0.95
    assert last["gpt-k1-none"] <= 0.3
    assert last[embedding(1, "none").name] <= 0.1
