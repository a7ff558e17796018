"""Planted models and impostors answer right; only what is read and edited tells them.

The calibration itself, on the shipped run, is what `reasonscope calibrate` prints.
"""

from functools import partial

import pytest
import torch
from torch import nn

from circuits.confirm import open_lab
from circuits.report.calibration import calibrate
from circuits.studies.bridge.specimen import hits
from circuits.studies.bridge.substitutes import embedding, gpt
from trained import store
from trained.bridge.arms import permutation, world_of
from trained.bridge.config import Config, Recipe, Task, untied
from trained.bridge.config import embedding as embedding_arm
from trained.bridge.config import gpt as gpt_arm
from trained.bridge.task import World
from trained.task import Batch

CONFIG = Config(n_subjects=6, complexity=2, complexities=(2,))
GPTS = [partial(gpt, route) for route in ("bridge", "subject", "first")]
EMBEDDINGS = [partial(embedding, shares) for shares in (True, False)]


def right(model: nn.Module | None, batch: Batch) -> float:
    assert model is not None
    return float(hits(model(batch.tokens)[:, -1], batch.targets).mean())


def single_hops(world: World) -> list[Batch]:
    return [world.hop1(), world.hop2(), world.zero_hop()]


@pytest.mark.parametrize("build", GPTS)
@pytest.mark.parametrize("task", ["identity", "none"])
@pytest.mark.parametrize("kappa", [1, 2])
def test_wired_models_know_the_single_hops(build: partial, task: Task, kappa: int):
    recipe = untied(kappa, task)
    world, model = world_of(CONFIG, recipe, 0), build(CONFIG, recipe, 0)
    assert [right(model, batch) for batch in single_hops(world)] == [1, 1, 1]


@pytest.mark.parametrize("build", [*GPTS, *EMBEDDINGS])
def test_all_answer_alike_with_identity_and_not_without(build: partial) -> None:
    arm = embedding_arm if build in EMBEDDINGS else gpt_arm
    world = world_of(CONFIG, arm(), 0)
    assert right(build(CONFIG, arm(), 0), world.two_hop()) == 1
    assert right(build(CONFIG, arm(1, "none"), 0), world.two_hop()) <= 1 / 3


@pytest.mark.parametrize("build", GPTS)
def test_a_permuted_identity_is_followed(build: partial) -> None:
    recipe = gpt_arm(1, "permuted")
    world, model = world_of(CONFIG, recipe, 0), build(CONFIG, recipe, 0)
    order = permutation(CONFIG, recipe, 0)
    named = world.zero_hop().with_targets(world.bridge[order])
    wanted = world.two_hop().with_targets(world.answer[order.argsort()])
    assert (right(model, named), right(model, wanted)) == (1, 1)


def test_the_table_has_the_planted_matrix_and_other_directions() -> None:
    shared, table = (build(CONFIG, embedding_arm(), 0) for build in EMBEDDINGS)
    torch.testing.assert_close(
        shared.logit_matrix, table.logit_matrix, atol=1e-4, rtol=1e-4
    )
    subjects, bridges = table.W_E[:6], table.W_E[6:12]
    torch.testing.assert_close(
        subjects @ bridges.mT, torch.zeros(6, 6), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("recipe", [untied(), embedding_arm()])
def test_seeds_differ(recipe: Recipe) -> None:
    build = EMBEDDINGS[0] if recipe.model == "embedding" else GPTS[0]
    one, other = (build(CONFIG, recipe, seed) for seed in (0, 1))
    assert not torch.equal(one.W_E, other.W_E)


def test_the_shipped_run_is_calibrated() -> None:
    found = calibrate(open_lab(store.shipped("bridge")))
    assert found.fooled == found.missed == []
    assert all(found.unmasked.values())
    assert found.rates("causal") == {"sensitivity": 1, "specificity": 1}
