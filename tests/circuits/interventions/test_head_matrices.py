"""Head matrices give the model's own scores and outputs."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from circuits.hooks import record
from circuits.interventions.head_matrices import head_matrices
from circuits.interventions.passes import activations
from circuits.models.norms import norm_parts
from circuits.sites import Site
from tests.ground_truth import OneQueryModel, copying_model, matching_model
from tests.intervention_pairs import random_decoder, random_pair
from tests.random_models import D_VOCAB, random_model
from trained.errors import BadInput
from trained.task import Batch

PLAIN = ("gemma", "gpt2", "llama", "neox", "phi")
"""Families without norms or caps inside the attention."""


def test_the_wired_identities_are_found() -> None:
    """z is d for cI and 0 for nothing; c is what was put in."""
    matching = head_matrices(matching_model().model, 0)
    d_model = matching.W_O.shape[-1]
    assert matching.identity_part("qk").tolist() == [30, 0]
    assert matching.identity_score("qk").tolist() == pytest.approx([d_model, 0])
    copying = head_matrices(copying_model().model, 0)
    assert copying.identity_part("ov").tolist() == [4, 0]
    assert copying.identity_score("ov").tolist() == pytest.approx([24, 0])


def test_random_heads_score_like_noise() -> None:
    scores = torch.stack(
        [head_matrices(random_decoder(s), 0).identity_score("qk") for s in range(40)]
    )
    assert abs(float(scores.mean())) < 0.4
    assert 0.5 < float(scores.std()) < 2


def test_values_and_outputs_are_those_of_the_decoder() -> None:
    """Without biases, head_out = A x W_V W_O."""
    model, (batch, _, _) = random_decoder(), random_pair()
    attention, layer = model.blocks[1].attn, 1
    for bias in (attention.b_V, model.blocks[1].ln1.layer.bias):
        assert isinstance(bias, nn.Parameter)
        bias.data.zero_()
    check_outputs(model, batch, layer)


@pytest.mark.parametrize("family", PLAIN)
def test_values_and_outputs_are_those_of_every_family(family: str) -> None:
    model = random_model(family).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.zero_()
    tokens = torch.randint(D_VOCAB, (2, 6), generator=torch.Generator().manual_seed(0))
    check_outputs(model, Batch(tokens, tokens[:, 0]), 1)


@torch.no_grad()
def check_outputs(model: Any, batch: Batch, layer: int) -> None:
    sites = [Site(kind, layer) for kind in ("resid_pre", "pattern", "head_out")]
    residual, pattern, head_out = activations(model, batch, sites).values()
    matrices = head_matrices(model, layer)
    states = matrices.folded.normalised(residual)
    expected = (pattern @ (states[:, None] @ matrices.matrix("ov"))).movedim(1, 2)
    torch.testing.assert_close(head_out, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_scores_are_those_of_gpt2() -> None:
    model = random_model("gpt2").double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.zero_()
    check_patterns(model)


@torch.no_grad()
@pytest.mark.parametrize("family", ["gemma", "llama", "neox", "phi"])
def test_scores_of_rotary_models_are_those_at_distance_zero(family: str) -> None:
    """Every token at the same position: nothing is rotated against anything."""
    model = random_model(family).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.zero_()
    check_patterns(model, position_ids=torch.zeros(2, 6, dtype=torch.long))


def check_patterns(model: Any, **options: Any) -> None:
    tokens = torch.randint(D_VOCAB, (2, 6), generator=torch.Generator().manual_seed(0))
    before, site = Site("resid_pre", 1), Site("pattern", 1)
    with record(model, [before, site]) as seen:
        model(tokens, **options)
    matrices = head_matrices(model, 1)
    states = matrices.folded.normalised(seen[before])[:, None]
    scores = matrices.scale * states @ matrices.matrix("qk") @ states.mT
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    pattern = scores.masked_fill(future, -math.inf).softmax(-1)
    torch.testing.assert_close(seen[site], pattern, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["qwen3", "gemma2", "gemma3"])
def test_scores_that_are_not_bilinear_are_refused(family: str) -> None:
    matrices = head_matrices(random_model(family), 0)
    assert matrices.matrix("ov").shape == (4, 32, 32)
    with pytest.raises(BadInput, match="no bilinear map"):
        matrices.identity_part("qk")


def test_bad_layers_and_models_are_named() -> None:
    with pytest.raises(BadInput, match="unknown layer '7'; choose from: 0 to 2"):
        head_matrices(random_decoder(), 7)
    with pytest.raises(BadInput, match="weights of OneQueryModel have no known layout"):
        head_matrices(OneQueryModel(), 0)
    with pytest.raises(BadInput, match="Linear cannot be observed"):
        head_matrices(nn.Linear(2, 2), 0)


@pytest.mark.parametrize("width", [8, 9])
@pytest.mark.parametrize("kind", ["layer", "rms", "none"])
def test_a_norm_is_taken_apart(width: int, kind: str) -> None:
    source = torch.Generator().manual_seed(0)
    norm: nn.Module = nn.Identity()
    if kind == "layer":
        norm = nn.LayerNorm(width).double()
    if kind == "rms":
        norm = nn.RMSNorm(width, eps=1e-5).double()
    for parameter in norm.parameters():
        parameter.data.add_(torch.randn(width, generator=source))
    states = 3 + torch.randn(4, width, generator=source).double()
    parts = norm_parts(norm, states)
    whole = parts.gain * parts.normalised(states) + parts.bias
    torch.testing.assert_close(whole, norm(states), rtol=1e-8, atol=1e-8)
    if kind != "none":
        size = parts.normalised(states).square().mean(-1)
        torch.testing.assert_close(size, torch.ones_like(size), rtol=1e-4, atol=0)
        weight = norm.weight
        assert isinstance(weight, torch.Tensor)
        torch.testing.assert_close(parts.gain, weight.detach(), rtol=1e-6, atol=1e-8)


def test_a_norm_of_another_kind_is_refused() -> None:
    states = torch.randn(3, 8).abs() + 0.1
    parts = norm_parts(torch.square, states)
    with pytest.raises(BadInput, match="neither a LayerNorm nor an RMSNorm"):
        parts.normalised(states)
