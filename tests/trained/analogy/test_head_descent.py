import pytest
import torch

from trained.analogy.block_arms import HeadDescent
from trained.analogy.model import HEAD, LinearBlock
from trained.analogy.task import analogy_world, premise_loss
from trained.arm import Arm, Stage, gradient_descent
from trained.seeding import generator
from trained.store import Run
from trained.trainer import Engine
from trained.training import train

WORLD = analogy_world(4)
PHASE = {"S_src": 2, "S_tgt": 2, "A": 1}
RATE, ITERATIONS, CHUNKS = 0.8, 15, 4


def build(seed):
    source = generator(seed, "test")
    return LinearBlock(WORLD.size, 24, n_neurons=2, std=0.3, generator=source)


def arm(name, stage):
    return Arm(name, build, (stage,), record_every=1)


def stage(**changes):
    options = {
        "name": "head",
        "steps": CHUNKS,
        "optimiser": gradient_descent(1.0),
        "loss": HeadDescent(RATE, ITERATIONS),
        "data": WORLD.draw(PHASE),
        "trainable": HEAD,
    }
    return Stage(**{**options, **changes})


@pytest.fixture
def run(tmp_path):
    manifest = {"study": "analogy", "config": {}, "seeds": [0, 1]}
    return Run.create(tmp_path, manifest)


@pytest.mark.parametrize("batching", ["vmap", "loop"])
def test_it_ends_where_plain_steps_of_the_engine_do(run, batching):
    plain = stage(
        steps=CHUNKS * ITERATIONS, optimiser=gradient_descent(RATE), loss=premise_loss
    )
    arms = [arm("plain", plain), arm("closed", stage())]
    train(run, arms, engine=Engine(batching=batching))
    one, other = run.weights("plain"), run.weights("closed")
    moved = (one["head"][0] - build(0).head).abs().max()
    assert moved > 0.05
    assert torch.allclose(one["head"], other["head"], atol=1e-5)
    assert torch.equal(one["blocks.0.attn.W_V"], other["blocks.0.attn.W_V"])
    losses = run.metrics("plain")["loss"][:, ::ITERATIONS]
    assert torch.allclose(
        run.metrics("closed")["loss"][:, :-1], losses[:, :-1], atol=1e-5
    )


def test_the_margin_is_negative_exactly_when_all_is_answered():
    model = build(0)
    premises = WORLD.phase(PHASE)
    descent = HeadDescent(RATE, 50, value="margin")
    for _ in range(60):
        with torch.no_grad():
            margin = float(descent(model, premises))
            answers = model(premises.facts.tokens)[:, -1].argmax(-1)
        assert (margin < 0) == bool((answers == premises.facts.targets).all())
        if margin < 0:
            return
        displacement, _ = descent._descend(model, premises)
        with torch.no_grad():
            model.head -= displacement
    pytest.fail("the head never fitted its premises")


def test_its_value_is_the_loss_before_the_steps():
    model = build(0)
    premises = WORLD.phase(PHASE)
    value = HeadDescent(RATE, ITERATIONS)(model, premises)
    assert value.item() == pytest.approx(premise_loss(model, premises).item(), rel=1e-5)
