"""The ordinary transformer reads the same clauses, with and without its options."""

import pytest
import torch

from tests.lego_models import N_VARIABLES, sentences
from trained.lego.config import Config, Standard
from trained.lego.standard import Sizes, StandardModel, standard_arm
from trained.lego.task import Vocabulary, clause_losses, rollout

SIZES = Vocabulary(N_VARIABLES, 3, 3)


def model_of(**options: object) -> StandardModel:
    config = Sizes(d_token=8, d_mlp=32, **options)  # type: ignore[arg-type]
    return StandardModel(SIZES, config, generator=torch.Generator().manual_seed(0))


OPTIONS = [
    {},
    {"residual": True},
    {"residual": True, "norm": True},
    {"n_positions": 12},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_shapes_and_the_future(options: dict[str, object]) -> None:
    model, batch = model_of(**options), sentences(4, 3)
    prediction, cache = model.run_with_cache(batch.tokens(SIZES))
    assert prediction.variable.shape == (3, 4, N_VARIABLES)
    assert prediction.value.shape == (3, 4, 3)
    assert cache["blocks.0.attn.hook_pattern"].shape == (3, 2, 4, 8)
    changed = batch.values.clone()
    changed[:, 2:] = (changed[:, 2:] + 1) % 3
    other = model(batch._replace(values=changed).tokens(SIZES))
    assert torch.equal(other.value[:, :2], prediction.value[:, :2])


@pytest.mark.parametrize("options", OPTIONS)
def test_only_positions_notice_the_order_of_predicates(
    options: dict[str, object],
) -> None:
    model, batch = model_of(**options), sentences(5, 4)
    permuted = batch._replace(places=torch.tensor([3, 0, 4, 1, 2]).expand(4, 5))
    first, second = (model(b.tokens(SIZES)).value for b in (batch, permuted))
    same = torch.allclose(first, second, atol=1e-5)
    assert same == ("n_positions" not in options)


def test_blank_slots_are_zero() -> None:
    model, batch = model_of(), sentences(2, 1)
    _, cache = model.run_with_cache(batch.tokens(SIZES))
    clauses = cache["hook_embed"].reshape(1, 4, 5, 8)
    assert (clauses[0, 0, 3:] == 0).all()
    assert (clauses[0, 2, :3] == 0).all()
    assert clauses[0, 0, :3].any()


def test_options_change_the_function() -> None:
    batch = sentences(4, 3)
    found = [model_of(**options)(batch.tokens(SIZES)).value for options in OPTIONS]
    for number, one in enumerate(found):
        assert all(not torch.allclose(one, other) for other in found[:number])


def test_it_learns_and_rolls_out() -> None:
    model = model_of()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for step in range(60):
        batch = sentences(1, 128, seed=step)
        loss = torch.stack(clause_losses(model(batch.tokens(SIZES)), batch)).sum()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    with torch.no_grad():
        own = rollout(model, sentences(3, 5), SIZES)
    assert own.values.shape == (5, 4)


def test_the_papers_recipe() -> None:
    recipe = Standard(variants=("norm",), n_sentences=300)
    config = Config(groups=("C3", "S3"), standard=recipe)
    arm = standard_arm(config, "C3", "norm")
    assert arm.name == "C3-standard-norm"
    stage = arm.stages[0]
    assert stage.optimiser.lr == 1e-4
    assert stage.steps == 300 * 3
    model = arm.build(0)
    assert stage.loss(model, stage.data(0, 0)) > 1


def test_a_variants_sizes_follow_the_config() -> None:
    config = Config(standard=Standard(d_token=16, d_mlp=32))
    assert Sizes.of(config, "positions").n_positions == 2 * 160
    plain = Sizes.of(config, "plain")
    assert (plain.d_model, plain.d_mlp, plain.n_positions) == (80, 32, 0)
    assert not plain.residual
    assert Sizes.of(config, "norm").residual
