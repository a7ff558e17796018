"""The backends agree with each other and with transformers, for every family and site.

Nothing is left out for a backend: a site that one of them could not serve would have to
be missing from its list, and the lists are compared as well.
"""

import copy
from functools import cache
from typing import Any

import pytest
import torch
from einops import einsum, repeat
from torch import Tensor

from circuits.backends import backend_of, hf
from circuits.backends.families import family_of
from circuits.hooks import Edit, intervene, record
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.sites import Kind, Site
from tests.random_models import N_LAYERS, letter_tokenizer, random_model
from trained.errors import BadInput
from trained.task import Batch

TEXTS = ("the cat sat", "a dog", "Hi there I")
PARALLEL = ("neox", "phi")
"""Families without a residual between attention and MLP."""


# Weights are random but the same each time: each thing is computed once.


@cache
def opened(family: str, backend: Any) -> LanguageModel:
    return pretrained.wrap(random_model(family), letter_tokenizer(), backend=backend)


@cache
def sites_of(family: str, backend: str) -> list[Site]:
    module = opened(family, backend).module
    return backend_of(module).sites(module)


@cache
def padded(family: str, side: Any) -> Batch:
    return opened(family, "hf").prompts(TEXTS, side=side)


@torch.no_grad()
def observe(family: str, backend: str, prompts: Batch) -> dict[Site, Tensor]:
    model = opened(family, backend)
    with record(model, sites_of(family, backend)) as seen:
        model(prompts.tokens, prompts.mask)
    return seen


@cache
def observed(family: str, backend: str, side: str) -> dict[Site, Tensor]:
    return observe(family, backend, padded(family, side))


@torch.no_grad()
def edited(family: str, backend: str, edits: dict[Site, Edit]) -> Tensor:
    model, prompts = opened(family, backend), padded(family, "left")
    with intervene(model, edits):
        return model(prompts.tokens, prompts.mask)[prompts.mask]


@cache
def edited_by_hf(family: str, site: Site, edit: Edit) -> Tensor:
    return edited(family, "hf", {site: edit})


@cache
@torch.no_grad()
def by_transformers(family: str, side: str) -> Any:
    """transformers' own account: eager attention, positions spelled out."""
    prompts = padded(family, side)
    return random_model(family, attn_implementation="eager")(
        input_ids=prompts.tokens,
        attention_mask=prompts.mask,
        position_ids=(prompts.mask.cumsum(1) - 1).clamp(min=0),
        output_attentions=True,
        output_hidden_states=True,
        use_cache=False,
    )


def require_close(found: Tensor, expected: Tensor, what: object) -> None:
    assert found.shape == expected.shape, what
    error = (found - expected).abs().max().item()
    assert error <= 1e-4, (str(what), error)


def at_real_tokens(activation: Tensor, prompts: Batch, site: Site) -> Tensor:
    """What is at real tokens; of a pattern, the rows of real queries."""
    if site.kind == "pattern":
        activation = activation.transpose(1, 2)
    return activation[prompts.mask]


# What is seen


def test_residuals_patterns_and_logits_are_those_of_transformers(
    family: str, backend: str, side: str
) -> None:
    prompts = padded(family, side)
    seen, theirs = observed(family, backend, side), by_transformers(family, side)
    expected = {Site("logits"): theirs.logits}
    for layer in range(N_LAYERS):
        expected[Site("pattern", layer)] = theirs.attentions[layer]
        expected[Site("resid_pre", layer)] = theirs.hidden_states[layer]
    for layer in range(N_LAYERS - 1):
        expected[Site("resid_post", layer)] = theirs.hidden_states[layer + 1]
    for site, reference in expected.items():
        found = at_real_tokens(seen[site], prompts, site)
        require_close(found, at_real_tokens(reference, prompts, site), site)
    # transformers keeps the last residual behind the final norm only.
    last = seen[Site("resid_post", N_LAYERS - 1)][prompts.mask]
    normed = opened(family, backend).readout.final_norm(last)
    require_close(normed, theirs.hidden_states[-1][prompts.mask], "final norm")


def test_the_backends_see_the_same_at_every_site(
    family: str, other: str, side: str
) -> None:
    assert sites_of(family, other) == sites_of(family, "hf")
    prompts = padded(family, side)
    ours, theirs = observed(family, "hf", side), observed(family, other, side)
    for site in ours:
        found = at_real_tokens(theirs[site], prompts, site)
        require_close(found, at_real_tokens(ours[site], prompts, site), site)


def test_the_backends_know_the_same_readout_and_heads(family: str, other: str) -> None:
    ours, theirs = opened(family, "hf"), opened(family, other)
    states = observed(family, "hf", "left")[Site("resid_post", N_LAYERS - 1)]
    found = backend_of(theirs.module).readout(theirs.module).logits(states)
    require_close(found, ours.readout.logits(states), "readout")
    if other == "bridge":
        with pytest.raises(BadInput, match=r"weights of .* have no known layout"):
            backend_of(theirs.module).head_weights(theirs.module, 0)
        return
    expected = hf.head_weights(ours.module, 1)
    weights = backend_of(theirs.module).head_weights(theirs.module, 1)
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        assert torch.equal(getattr(weights, name), getattr(expected, name))


@torch.no_grad()
def test_a_pass_resumes_where_it_was_left(family: str, side: str) -> None:
    """From every block, with the logits of one position shown at all of them."""
    model, prompts = opened(family, "hf"), padded(family, side)
    seen, rows = observed(family, "hf", side), torch.arange(len(prompts))
    whole = seen[Site("logits")][rows, prompts.last]
    resumption = hf.resumption(model.module)
    for layer in range(N_LAYERS):
        residual = seen[Site("resid_pre", layer)]
        with resumption.starting(residual, layer, prompts.last):
            logits = model(torch.zeros_like(prompts.tokens), prompts.mask)
        for place in range(logits.shape[1]):
            require_close(logits[:, place], whole, layer)
    require_close(
        model(prompts.tokens, prompts.mask)[prompts.mask],
        seen[Site("logits")][prompts.mask],
        "afterwards",
    )


@pytest.mark.parametrize("backend", ["bridge", "nnsight"])
def test_other_backends_say_that_they_cannot_resume(backend: str) -> None:
    module = opened("gpt2", backend).module
    assert backend_of(module).resumption(module) is None


def test_padding_changes_nothing_at_any_site(
    family: str, backend: str, side: str
) -> None:
    prompts, row = padded(family, side), 1
    places = prompts.mask[row]
    assert 0 < places.sum() < len(places)
    alone = observe(family, backend, opened(family, backend).prompts([TEXTS[row]]))
    for site, activation in observed(family, backend, side).items():
        found = activation[row]
        if site.kind == "pattern":
            assert not found[:, places][..., ~places].any()
            found = found[:, places][..., places]
        else:
            found = found[places]
        require_close(found, alone[site][0], site)


# What the sites have to do with each other


def test_the_sites_add_up(family: str, backend: str) -> None:
    prompts, seen = padded(family, "left"), observed(family, backend, "left")

    def at(kind: Kind) -> Tensor:
        return seen[Site(kind, layer)][prompts.mask]

    for layer in range(N_LAYERS):
        halves = at("attn_out") + at("mlp_out")
        require_close(at("resid_pre") + halves, at("resid_post"), layer)
        if family not in PARALLEL:
            middle = at("resid_pre") + at("attn_out")
            require_close(at("resid_mid"), middle, layer)
    assert (Site("resid_mid") in seen) == (family not in PARALLEL)


@torch.no_grad()
def test_heads_are_patterns_times_values_and_sum_to_the_attention(
    family: str, backend: str
) -> None:
    prompts, seen = padded(family, "left"), observed(family, backend, "left")
    pristine = random_model(family)
    layout = family_of(pristine)
    for layer, block in enumerate(pristine.get_submodule(layout.blocks)):
        projection = block.get_submodule(layout.output_projection)
        pattern, value = seen[Site("pattern", layer)], seen[Site("value", layer)]
        scale = layout.residual_scale
        weights = scale * hf.output_weights(projection, pattern.shape[1])
        group = pattern.shape[1] // value.shape[2]
        value = repeat(value, "b key kv d -> b key (kv group) d", group=group)
        axes = "b h q k, b k h d, h d m -> b q h m"
        heads = einsum(pattern, value, weights, axes)
        found = seen[Site("head_out", layer)]
        require_close(found[prompts.mask], heads[prompts.mask], layer)
        total = found.sum(2)
        total = total if projection.bias is None else total + scale * projection.bias
        if layout.attention_added != layout.attention:
            total = block.get_submodule(layout.attention_added)(total)
        attention = seen[Site("attn_out", layer)]
        require_close(attention[prompts.mask], total[prompts.mask], layer)


# What is changed


def zero_first_head(head_out: Tensor) -> Tensor:
    head_out = head_out.clone()
    head_out[:, :, 0] = 0.0
    return head_out


def uniform(pattern: Tensor) -> Tensor:
    """Every query looks evenly at all that it may look at."""
    allowed = (pattern > 0).to(pattern)
    return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)


def shaken(activation: Tensor) -> Tensor:
    source = torch.Generator().manual_seed(1)
    return activation * (1 + 0.5 * torch.randn(activation.shape, generator=source))


def test_an_edit_does_the_same_on_every_backend(family: str, other: str) -> None:
    # The first layer's edits pass through all the rest; the last one's is special.
    cases = [(site, shaken) for site in sites_of(family, "hf") if site.layer == 0]
    cases += [(Site("resid_post", N_LAYERS - 1), shaken)]
    cases += [(Site("pattern", layer), uniform) for layer in range(N_LAYERS)]
    cases += [(Site("head_out", layer), zero_first_head) for layer in range(N_LAYERS)]
    plain = edited(family, "hf", {})
    for site, edit in cases:
        ours = edited_by_hf(family, site, edit)
        assert (ours - plain).abs().max() > 1e-3, site
        require_close(edited(family, other, {site: edit}), ours, site)


def test_edits_at_all_sites_act_together(family: str, other: str) -> None:
    edits: dict[Site, Edit] = dict.fromkeys(sites_of(family, "hf"), shaken)
    ours, theirs = edited(family, "hf", edits), edited(family, other, edits)
    require_close(theirs, ours, "all sites")


@torch.no_grad()
def test_the_first_edit_is_what_the_second_one_sees(family: str, backend: str) -> None:
    model, prompts = opened(family, backend), padded(family, "left")
    # One place for each: what lies behind an edited site is edited, too.
    for site in [site for site in sites_of(family, backend) if site.layer == 0]:
        with (
            record(model, [site]) as before,
            intervene(model, {site: lambda activation: 2 * activation}),
            record(model, [site]) as between,
            intervene(model, {site: lambda activation: activation + 1}),
            record(model, [site]) as after,
        ):
            model(prompts.tokens, prompts.mask)
        require_close(between[site], 2 * before[site], site)
        require_close(after[site], 2 * before[site] + 1, site)


@torch.no_grad()
def test_editing_the_residual_between_the_halves_moves_both_branches(
    family: str, backend: str
) -> None:
    if family in PARALLEL:
        pytest.skip("attention and MLP read the same residual")
    model, prompts = opened(family, backend), padded(family, "left")
    added, end = Site("mlp_out", 1), Site("resid_post", 1)
    with (
        intervene(model, {Site("resid_mid", 1): torch.zeros_like}),
        record(model, [added, end]) as seen,
    ):
        model(prompts.tokens, prompts.mask)
    # Nothing came past the norm: the block gives what its MLP adds.
    require_close(seen[end], seen[added], end)


def test_opening_leaves_the_callers_model_alone(family: str, backend: Any) -> None:
    caller = random_model(family)
    weights = copy.deepcopy(caller.state_dict())
    names = [name for name, _ in caller.named_modules()]
    before = (caller.config._attn_implementation, caller.training)
    model = pretrained.wrap(caller, letter_tokenizer(), backend=backend)
    prompts = padded(family, "left")
    with torch.no_grad(), record(model, [Site("pattern", 1), Site("head_out", 1)]):
        model(prompts.tokens, prompts.mask)
    assert [name for name, _ in caller.named_modules()] == names
    assert (caller.config._attn_implementation, caller.training) == before
    assert all(torch.equal(weights[k], v) for k, v in caller.state_dict().items())
    assert all(parameter.requires_grad for parameter in caller.parameters())
