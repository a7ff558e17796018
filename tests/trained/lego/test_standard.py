"""The ordinary transformer reads the same clauses, with and without its options."""

import pytest
import torch

from tests.lego_models import N_VARIABLES, sentences
from trained.lego import standard_arms as standard_arms_module
from trained.lego.config import Config, Standard
from trained.lego.standard import Sizes, StandardModel
from trained.lego.standard_arms import Recipe, standard_arms
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
    torch.testing.assert_close(other.value[:, :2], prediction.value[:, :2])
    assert not torch.allclose(other.value[:, 2:], prediction.value[:, 2:])


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


@pytest.mark.parametrize("options", [{}, {"n_positions": 12, "token_std": 3.0}])
@pytest.mark.parametrize("queries", [slice(None), slice(-1, None)])
def test_looked_up_is_what_is_written_out(
    options: dict[str, object], queries: slice
) -> None:
    """Products of tables and lookups against the plain products, values and slopes."""
    model, batch = model_of(**options), sentences(4, 3)
    tokens = batch.tokens(SIZES)
    assert model._is_lean
    found = []
    for listener in (False, True):
        handle = model.hook_embed.register_forward_hook(lambda *_: None)
        if not listener:
            handle.remove()
        assert model._is_lean != listener
        model.zero_grad()
        prediction = model(tokens, queries=queries)
        torch.autograd.backward(prediction.value.square().sum())
        slopes = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        found.append((*prediction, *slopes))
        handle.remove()
    for lean, plain in zip(*found, strict=True):
        torch.testing.assert_close(lean, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("point", ["hook_mlp_out", "hook_resid_post"])
def test_who_listens_behind_the_mlp_hears_what_is_read(point: str) -> None:
    model, batch = model_of(), sentences(4, 3)
    tokens, heard = batch.tokens(SIZES), []
    alone = model(tokens)
    listening = getattr(model.block, point).register_forward_hook(
        lambda _module, _inputs, state: heard.append(state)
    )
    listened = model(tokens)
    listening.remove()
    for one, other in zip(alone, listened, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    (state,) = heard
    torch.testing.assert_close(torch.cat(listened, -1), state @ model.W_U)


def test_residual_and_norm_are_written_out() -> None:
    assert not model_of(residual=True)._is_lean
    assert not model_of(residual=True, norm=True)._is_lean


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
    arm = Recipe(config, "C3", "norm").arm
    assert arm.name == "C3-standard-norm"
    stage = arm.stages[0]
    assert stage.optimiser.lr == 1e-4
    assert stage.steps == 300 * 3
    model = arm.build(0)
    assert stage.loss(model, stage.data(0, 0)) > 1


ROUNDS = Config(
    groups=("C3", "S3"),
    standard=Standard(
        variants=("plain", "positions"),
        groups=("C3", "S3"),
        n_variables=12,
        epochs=2,
        kept=(1,),
        n_sentences=64,
        batch=16,
        d_token=8,
        d_mlp=16,
        rounds=(6, 10),
        round_steps=3,
        n_round=20,
        null_seeds=1,
    ),
)


def test_rounds_go_on_in_the_same_arm() -> None:
    recipe = Recipe(ROUNDS, "S3")
    names = ["all", "gold6", "gold10", "corrupt", "self6", "self10"]
    assert list(recipe.milestones) == names
    assert recipe.kept == {1: 4, 2: 8}
    assert Recipe(ROUNDS, "C3").rounds == ()
    assert Recipe(ROUNDS, "S3", "positions").rounds == ()
    stages = {stage.name: stage for stage in recipe.stages}
    queries = {
        name: stages[name].data(0, 0).actions[: stages[name].batch_size].numel()
        for name in ("gold6", "gold10", "self6", "self10")
    }
    assert queries["gold6"] == queries["gold10"] == queries["self10"] == 80
    assert queries["self6"] == 78
    assert stages["gold6"].data(0, 0).length == 5
    arms = {arm.name: arm for arm in standard_arms(ROUNDS)}
    assert set(arms) == {
        *("C3-standard-plain", "C3-standard-plain-shuffled", "C3-standard-positions"),
        *("S3-standard-plain", "S3-standard-plain-shuffled"),
    }
    assert arms["S3-standard-plain-shuffled"].steps == 8
    assert arms["C3-standard-positions"].max_seeds == 1


def test_a_round_learns_from_the_annotator_alone() -> None:
    recipe = Recipe(ROUNDS, "S3")
    stage = recipe.stages[-1]
    model, sentences_ = recipe.build(0), stage.data(0, 0)
    loss = stage.loss(model, stage.label(model, sentences_))
    wrong = (sentences_.values + 1) % 3
    wrong[:, 0] = sentences_.values[:, 0]
    other = stage.label(model, sentences_._replace(values=wrong))
    torch.testing.assert_close(loss, stage.loss(model, other))
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        parameters["student.W_U"].mul_(2)
        recipe.stages[1].prepare(parameters)
    assert torch.equal(parameters["annotator.W_U"], parameters["student.W_U"])


def test_a_round_is_annotated_in_parts_as_a_whole(monkeypatch) -> None:
    recipe = Recipe(ROUNDS, "S3")
    stage = recipe.stages[-1]
    model, sentences_ = recipe.build(0), stage.data(0, 0)
    whole = stage.label(model, sentences_)
    assert torch.equal(whole.asked.values, sentences_.values)
    expected = rollout(model.annotator, sentences_, recipe.words)
    assert torch.equal(whole.written.values, expected.values)
    monkeypatch.setattr(standard_arms_module, "AT_ONCE", 7)
    parts = stage.label(model, sentences_)
    assert all(map(torch.equal, whole.written, parts.written))


def test_the_useless_annotator_is_undone() -> None:
    recipe = Recipe(ROUNDS, "S3")
    stages = {stage.name: stage for stage in recipe.stages}
    parameters = dict(recipe.build(0).named_parameters())
    key = "annotator.blocks.0.attn.W_K"
    before = parameters[key].detach().clone()
    with torch.no_grad():
        stages["corrupt"].prepare(parameters)
        assert not torch.equal(parameters[key], before)
        stages["self6"].prepare(parameters)
    assert torch.equal(parameters[key], before)


def test_a_variants_sizes_follow_the_config() -> None:
    config = Config(standard=Standard(d_token=16, d_mlp=32))
    assert Sizes.of(config, "positions").n_positions == 2 * 160
    plain = Sizes.of(config, "plain")
    assert (plain.d_model, plain.d_mlp, plain.n_positions) == (80, 32, 0)
    assert not plain.residual
    assert Sizes.of(config, "norm").residual
