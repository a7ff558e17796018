"""Branches share an FFN; an increment trained from zero continues its parents."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.lego_models import sentences, wired
from trained.arm import Arm, Stage, adam
from trained.errors import BadInput
from trained.lego.arms import (
    Weighted,
    next_clause_loss,
    self_labelled_loss,
    watch,
    weighted_loss,
)
from trained.lego.model import (
    UNIFORM,
    Branch,
    Branches,
    FoldedModel,
    Uniform,
)
from trained.lego.task import right_steps
from trained.store import Run
from trained.trainer import Engine
from trained.training import restore, train


def blind(seed: int = 0) -> FoldedModel:
    """A model that has not learned to attend."""
    model = wired().attend(Uniform(2))
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.block.mlp.W_out += 0.1 * torch.randn(
            model.block.mlp.W_out.shape, generator=source
        )
    return model


def family() -> Branches:
    return Branches(blind(), (Branch("first"), Branch("second", ("first",))))


def test_a_branch_is_the_sum_of_its_line() -> None:
    model, batch = family(), sentences(3, 4)
    with torch.no_grad():
        for number, name in enumerate(("first", "second")):
            for table in model.key_query[name].parameters():
                table.normal_(generator=torch.Generator().manual_seed(number))
    single = model.single("second")
    total = sum(model.key_query[name].Q43 for name in ("first", "second"))  # type: ignore[union-attr,misc]
    torch.testing.assert_close(single.tables.Q43.data, total.data)
    own = model(batch, "second")
    torch.testing.assert_close(single(batch.tokens(single.vocabulary)), own)
    assert not torch.allclose(own.value, model(batch, "first").value)


def test_uniform_is_before_any_branch() -> None:
    model, batch = family(), sentences(3, 4)
    pattern = model.pattern(batch, UNIFORM)
    torch.testing.assert_close(pattern[:, :, 0, :4], torch.full((4, 2, 4), 0.25))
    torch.testing.assert_close(model(batch, "second"), model(batch))
    with pytest.raises(BadInput, match="unknown branch 'third'"):
        model(batch, "third")


def _arm(name: str, stages: tuple[Stage, ...]) -> Arm:
    return Arm(name, lambda _seed: family(), stages)


def _stage(branch: str, first: int, steps: int) -> Stage:
    return Stage(
        name=branch,
        steps=steps,
        optimiser=adam(0.1),
        loss=lambda model, data: next_clause_loss(model, data, branch=branch),
        data=lambda seed, step: sentences(3, 16, seed=1000 * seed + first + step),
        draw="each step",
        trainable=(f"key_query.{branch}.*",),
    )


def _run(path: Path) -> Run:
    return Run.create(path, {"study": "lego", "config": {}, "seeds": [0, 1]})


@pytest.mark.parametrize("batching", ["vmap", "loop"])
def test_seeds_stacked_or_in_a_loop_learn_to_attend(
    tmp_path: Path, batching: str
) -> None:
    run, arm = _run(tmp_path), _arm("a", (_stage("first", 0, 60),))
    train(run, [arm], engine=Engine(batching=batching))  # type: ignore[arg-type]
    trained = restore(run, arm, 1)
    assert isinstance(trained, Branches)
    batch = sentences(6, 50, seed=99)
    before = right_steps(trained(batch), batch)[1].double().mean()
    after = right_steps(trained(batch, "first"), batch)[1].double().mean()
    assert before < 0.7
    assert after > 0.95
    # The FFN and the other branch were frozen.
    fresh = family().state_dict()
    for name, tensor in trained.state_dict().items():
        assert torch.equal(tensor, fresh[name]) == ("first" not in name)


def test_the_second_branch_leaves_the_first_alone(tmp_path: Path) -> None:
    run = _run(tmp_path)
    arm = replace(
        _arm("a", (_stage("first", 0, 10), _stage("second", 10, 10))), save_steps=(10,)
    )
    train(run, [arm], engine=Engine())
    early, late = (restore(run, arm, 0, step=step) for step in (10, None))
    for name in ("Q43", "Q44"):
        first = f"key_query.first.{name}"
        assert torch.equal(early.state_dict()[first], late.state_dict()[first])
        assert not early.state_dict()[f"key_query.second.{name}"].any()
        assert late.state_dict()[f"key_query.second.{name}"].any()


def test_self_labels_come_from_the_annotator_not_from_the_truth() -> None:
    model, batch = family(), sentences(4, 8)
    lies = batch._replace(values=(batch.values + 1) % 3)
    lies = lies._replace(values=torch.cat([batch.values[:, :1], lies.values[:, 1:]], 1))
    losses = [
        self_labelled_loss(model, b, branch="first", annotator=UNIFORM)
        for b in (batch, lies)
    ]
    torch.testing.assert_close(*losses)
    assert next_clause_loss(model, lies, branch="first") != next_clause_loss(
        model, batch, branch="first"
    )


def test_the_annotator_gets_no_gradient() -> None:
    model = family()
    self_labelled_loss(
        model, sentences(4, 8), branch="second", annotator="first"
    ).backward()
    # The first is a parent of the second, so its tables count there, but only there.
    with_labels = model.key_query["first"].Q43.grad  # type: ignore[union-attr]
    torch.testing.assert_close(with_labels, model.key_query["second"].Q43.grad)  # type: ignore[union-attr]


def test_only_weighted_steps_count() -> None:
    model, batch = family(), sentences(3, 2)
    weight = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = weighted_loss(model, Weighted(batch, weight), branch="first")
    logits = model(batch, "first").value[0, 0].log_softmax(-1)
    torch.testing.assert_close(found, -logits[batch.values[0, 1]])


def test_what_is_watched() -> None:
    model, batch = Branches(blind(), (Branch("first"),)), sentences(3, 6)
    seen = watch(model, batch, branch="first")
    uniform = sum(1 / (3 + step + 1) for step in range(3)) / 3
    assert seen["predicate"].item() == pytest.approx(uniform, rel=1e-5)
    assert seen["answer"].item() == pytest.approx(uniform, rel=1e-5)
    assert seen["value_loss"] > 0
