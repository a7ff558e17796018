import pytest
import torch

from trained.analogy.config import Linear
from trained.analogy.model import DeepLinear, LinearBlock, ReluBlock
from trained.analogy.task import analogy_world, premise_loss
from trained.seeding import generator

N_NEURONS, D_MODEL = 4, 24


def linear_block():
    source = generator(0, "test")
    return LinearBlock(18, D_MODEL, n_neurons=N_NEURONS, std=0.3, generator=source)


def relu_block():
    source = generator(0, "test")
    return ReluBlock(18, D_MODEL, n_neurons=3, scale=5.0, std=0.3, generator=source)


def test_embeddings_are_orthonormal_and_not_stored():
    model = linear_block()
    assert torch.allclose(model.W_E @ model.W_E.T, torch.eye(18), atol=1e-5)
    assert "W_E" not in model.state_dict()


@torch.no_grad()
def test_linear_logits_follow_the_formula():
    model = linear_block()
    attention = model.blocks[0].attn
    entity, relation = model.W_E[3], model.W_E[16]
    x = torch.stack([entity, relation])
    weights = (x @ attention.W_KQ @ relation).softmax(0)
    h = attention.W_V @ (weights @ x)
    expected = D_MODEL**0.5 * model.head @ h
    found = model(torch.tensor([[3, 16]]))[0, 0]
    assert torch.allclose(found, expected, atol=1e-5)


@torch.no_grad()
def test_relu_logits_follow_the_formula():
    model = relu_block()
    tokens = torch.tensor([[3, 16]])
    h = model.features(tokens)[0, 0]
    expected = 5.0 / 3 * (model.head @ h).relu().sum(-1)
    assert torch.allclose(model(tokens)[0, 0], expected, atol=1e-5)


def test_the_mean_neuron_stands_for_all_of_them():
    """m linear neurons per class end where their mean does at rate / m."""
    premises = analogy_world(4).phase({"S_src": 2, "S_tgt": 2, "A": 1})
    model, rate, steps = linear_block(), 0.7, 5
    features = model.features(premises.facts.tokens)[:, 0].detach()
    draw = torch.randn(18, N_NEURONS, D_MODEL, generator=generator(1, "neurons"))
    neurons = draw.clone().requires_grad_()
    mean = draw.mean(1).clone().requires_grad_()
    for _ in range(steps):
        for weights, lr in ((neurons, rate), (mean, rate / N_NEURONS)):
            averaged = weights.mean(1) if weights.ndim == 3 else weights
            logits = model.scale * features @ averaged.mT
            losses = torch.nn.functional.cross_entropy(
                logits, premises.facts.targets, reduction="none"
            )
            (gradient,) = torch.autograd.grad(
                (premises.weights * losses).sum(), weights
            )
            with torch.no_grad():
                weights -= lr * gradient
    assert torch.allclose(neurons.mean(1), mean, atol=1e-5)


def test_weights_stand_for_copies():
    world = analogy_world(4)
    model = linear_block()
    once = world.phase({"S_src": 3, "A": 1})
    first, more = world.premises("S_src"), world.premises("A")
    copied = torch.nn.functional.cross_entropy(
        model(torch.cat([*[first.tokens] * 3, more.tokens]))[:, -1],
        torch.cat([*[first.targets] * 3, more.targets]),
    )
    assert premise_loss(model, once).item() == pytest.approx(copied.item(), rel=1e-5)


@pytest.mark.parametrize("build", [linear_block, relu_block])
def test_hook_points_have_the_usual_names(build):
    model = build()
    _, cache = model.run_with_cache(torch.tensor([[3, 16], [4, 17]]))
    assert cache["blocks.0.attn.hook_pattern"].shape == (2, 1, 1, 2)
    assert cache["blocks.0.attn.hook_v"].shape == (2, 2, 1, D_MODEL)
    assert cache["blocks.0.hook_attn_out"].shape == (2, 1, D_MODEL)
    rows = cache["blocks.0.attn.hook_pattern"].sum(-1)
    assert torch.allclose(rows, torch.ones_like(rows))


def test_an_untrained_deep_linear_network_is_the_identity_below_its_head():
    model = DeepLinear(Linear(layers=3, width=32), 8, generator=generator(0, "test"))
    tokens = torch.arange(8)[:, None]
    assert torch.allclose(model(tokens)[:, 0], model.W_E[:, :4], atol=1e-6)
