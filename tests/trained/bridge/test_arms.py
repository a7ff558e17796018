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
    shown,
    training_facts,
)
from trained.bridge.config import (
    BOTH,
    Config,
    Direction,
    Gpt,
    Theory,
    direction,
    embedding,
    gpt,
    recipes,
    untied,
)
from trained.bridge.config import shown as shown_arm
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

SMALL = Config(
    n_subjects=6,
    complexity=3,
    complexities=(2,),
    direction=Direction(n_subjects=4, scaled_steps=2000),
    gpt=Gpt(
        regimes=("small", "standard", "decay", "std"),
        d_model=64,
        n_layers=2,
        gamma=1.4,
        steps=100,
        lr=1e-3,
    ),
    theory=Theory(sizes=(5,)),
    variants=("untied", "random", "shown"),
)


def test_every_recipe_is_an_arm() -> None:
    assert [r.name for r in recipes(SMALL)] == [arm.name for arm in arms(SMALL)]


def test_the_judged_gpt_is_the_papers() -> None:
    """Tied head, positions from 0; one recipe, whatever head, regime or kappa."""
    found = {arm.name: arm for arm in arms(SMALL)}
    tied = found[gpt(3).name]
    assert "unembedding" not in tied.build(0).state_dict()
    assert not tied.stages[0].data(0, 5).offset.any()
    several = [a.stages[0] for name, a in found.items() if name.startswith("gpt")]
    recipe = {(s.steps, s.optimiser.lr, s.optimiser.warmup) for s in several}
    assert recipe == {(100, 1e-3, 50)}
    # The course of training is recorded of the judged arm.
    assert tied.record_every == SMALL.gpt.record_every
    assert found[untied(3).name].record_every > SMALL.gpt.record_every


def test_decay_is_trained_where_complexity_is_high() -> None:
    """And differs from the standard initialisation in nothing else."""
    found = {arm.name: arm for arm in arms(SMALL)}
    for task in BOTH:
        held, free = (found[gpt(3, task, r).name] for r in ("decay", "standard"))
        decays = [arm.stages[0].optimiser.weight_decay for arm in (held, free)]
        assert decays == [SMALL.gpt.decay, 0]
        one, other = (arm.build(3).state_dict() for arm in (held, free))
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_twins_train_alike_on_permuted_answers() -> None:
    found = {arm.name: arm for arm in arms(replace(SMALL, twins=True))}
    twins = [name for name in found if name.endswith(SHUFFLED)]
    assert len(found) - len(twins) == len(recipes(SMALL))
    assert len(twins) == 6 + 2 + 3
    for name in twins:
        own, twin = found[name.removesuffix(SHUFFLED)], found[name]
        facts, permuted = (arm.stages[0].data(0, 0) for arm in (own, twin))
        assert torch.equal(facts.tokens, permuted.tokens)
        assert not torch.equal(facts.targets, permuted.targets)
        assert (own.stages[0].steps, own.build) == (twin.stages[0].steps, twin.build)


def test_arms_with_and_without_identity_start_alike() -> None:
    pairs = [(gpt(2), gpt(2, "none")), (embedding(), embedding(1, "none"))]
    for first, second in pairs:
        one, other = (model_of(SMALL, r, 3).state_dict() for r in (first, second))
        assert all(torch.equal(one[name], other[name]) for name in one)
    different = model_of(SMALL, gpt(2), 4).state_dict()
    assert not torch.equal(different["W_E"], one["W_E"])


def test_only_the_zero_hop_labels_differ_between_tasks() -> None:
    by_task = {t: training_facts(SMALL, gpt(2, t), 0) for t in BOTH}
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
    permuted = training_facts(SMALL, gpt(2, "permuted"), 0).targets[12:, 0]
    assert torch.equal(permuted, 6 + permutation(SMALL, gpt(2, "permuted"), 0))
    assert not (permuted == torch.arange(6, 18)).any()
    off = replace(SMALL, identity=0.0)
    assert (training_facts(off, gpt(2), 0).targets[:, 0] == -1).all()


def test_two_hop_items_of_one_half_are_shown() -> None:
    recipe = shown_arm()
    facts, plain = training_facts(SMALL, recipe, 0), training_facts(SMALL, gpt(), 0)
    told = shown(SMALL, recipe, 0)
    assert int(told.sum()) == 3
    assert not shown(SMALL, gpt(), 0).any()
    items = facts.tokens[12:]
    assert torch.equal(items[:, 0], told.nonzero()[:, 0])
    assert (facts.targets[12:, :2] == -1).all()
    assert (facts.targets[:12, 2] == -1).all()
    assert torch.equal(facts.tokens[:12, :2], plain.tokens)
    assert torch.equal(facts.targets[:12, :2], plain.targets)


def test_offsets_move_from_step_to_step() -> None:
    stage = next(arm for arm in arms(SMALL) if arm.name == untied().name).stages[0]
    first, second = stage.data(0, 0), stage.data(0, 1)
    assert not torch.equal(first.offset, second.offset)
    assert torch.equal(first.offset, stage.data(0, 0).offset)
    assert set(first.offset.tolist()) <= {0, 1, 2}


def test_initial_scales() -> None:
    def spread(recipe: object) -> float:
        return float(model_of(SMALL, recipe, 0).state_dict()["W_E"].std())

    assert spread(gpt()) == pytest.approx(64**-1.4, rel=0.1)
    assert spread(gpt(regime="standard")) == pytest.approx(64**-0.5, rel=0.1)
    assert spread(gpt(regime="decay")) == spread(gpt(regime="standard"))
    assert spread(gpt(regime="std")) == pytest.approx(0.02, rel=0.1)


def test_scaled_descent_takes_steps_of_one_length(tmp_path: Path) -> None:
    """Without decay, in double precision, until the loss is tiny."""
    chosen = {direction(task, "scaled").name for task in BOTH}
    found = [arm for arm in arms(SMALL) if arm.name in chosen]
    assert all(a.stages[0].optimiser.weight_decay == 0 for a in found)
    short = [replace(a, stages=(replace(a.stages[0], steps=1),)) for a in found]
    run = Run.create(tmp_path / "a", {"study": "bridge", "config": {}, "seeds": [0, 1]})
    train(run, short, engine=Engine())
    for arm in short:
        weights = run.weights(arm.name)
        for index, seed in enumerate((0, 1)):
            before = arm.build(seed).state_dict()
            moved = [(weights[n][index] - before[n]).square().sum() for n in before]
            length = float(torch.stack(moved).sum().sqrt())
            assert length == pytest.approx(SMALL.direction.scaled_lr, rel=1e-6)
    run = Run.create(tmp_path / "b", {"study": "bridge", "config": {}, "seeds": [0]})
    train(run, found, engine=Engine())
    assert all(run.metrics(a.name)["loss"][0, -1] < 1e-12 for a in found)


def test_identity_lets_one_hop_facts_compose(tmp_path: Path) -> None:
    config = replace(SMALL, n_subjects=10)
    chosen = {gpt().name, untied().name, untied(1, "none").name}
    chosen |= {embedding().name, embedding(1, "none").name}
    found = [arm for arm in arms(config) if arm.name in chosen]
    run = Run.create(tmp_path, {"study": "bridge", "config": {}, "seeds": [0]})
    train(run, found, engine=Engine())
    last = {name: run.metrics(name)["ood"][:, -1].mean() for name in chosen}
    learned = {name: run.metrics(name)["hop2"][:, -1].min() for name in chosen}
    assert min(learned.values()) == 1
    assert last[gpt().name] >= 0.5
    assert last[untied().name] >= 0.9
    assert last[embedding().name] >= 0.95
    assert last[untied(1, "none").name] <= 0.3
    assert last[embedding(1, "none").name] <= 0.1
