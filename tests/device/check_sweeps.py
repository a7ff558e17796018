"""Sweeps and signals are the same there, of small models and of several families."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from circuits.hooks import Model, Signal, measure
from circuits.interventions.ablation import (
    Edges,
    ablation_sweep,
    edge_grid,
    knock_out,
    knockout_sweep,
)
from circuits.interventions.attribution import logit_attribution
from circuits.interventions.edit import Mean, Resample, Rule, Transplant, Zero
from circuits.interventions.part import Grid, Part, head_grid, position_grid
from circuits.interventions.passes import answer_logits
from circuits.interventions.patching import patch_sweep
from circuits.interventions.path_patching import (
    Path,
    Receiver,
    path_patch_sweep,
    paths_by_head,
)
from circuits.interventions.sweep import Reading, logit_difference
from circuits.models.open import wrap
from probes.measurement import Measurement
from tests.device import standin
from tests.intervention_pairs import random_decoder
from tests.random_models import D_VOCAB, letter_tokenizer, random_model
from trained.task import Batch

LAYERS, HEADS = range(2), range(3)
MODELS = ("decoder", "gpt2", "llama", "gemma2", "neox")
"""A small model, and families whose attention, norms and logits differ."""
READERS = (
    *(Receiver("attention", 1, 0, way) for way in ("input", "pattern", "value")),
    *(Receiver("mlp", 1), Receiver("logits")),
)

View = Callable[[Model, Batch, Batch], Tensor | Measurement]


def opened(name: str, place: torch.device) -> Model:
    module: nn.Module = random_decoder() if name == "decoder" else random_model(name)
    moved = module.requires_grad_(False).to(place)
    return moved if name == "decoder" else wrap(moved, letter_tokenizer())


def pair(name: str, place: torch.device) -> tuple[Batch, Batch]:
    """Prompts that differ from position 1 on; of a language model, one is padded."""
    source = torch.Generator().manual_seed(1)
    most = 13 if name == "decoder" else D_VOCAB
    tokens = torch.randint(3, most, (2, 3, 5), generator=source)
    tokens[1, :, 0] = tokens[0, :, 0]
    mask = None
    if name != "decoder":
        mask = torch.ones(3, 5, dtype=torch.bool)
        mask[2, 0] = False
    targets = torch.tensor([4, 5, 6])
    roles = {"it": torch.tensor([[1], [2], [1]])}
    clean, corrupt = (Batch(own, targets, mask, roles).to(place) for own in tokens)
    return clean, corrupt


def reading(batch: Batch) -> Reading:
    # So little at once that there are several passes.
    return Reading(logit_difference((batch.targets + 1) % 13), tokens_at_once=64)


def ablated(
    rule: Callable[[Batch], Rule], model: Model, clean: Batch, corrupt: Batch
) -> Measurement:
    grid = head_grid("head_out", LAYERS, HEADS)
    return ablation_sweep(model, clean, grid, rule(corrupt), reading(clean))


def unpadded(view: View, model: Model, clean: Batch, corrupt: Batch) -> Any:
    """What mixes prompts asks for columns that mean the same in all of them."""
    return view(model, clean.rows(slice(2)), corrupt.rows(slice(2)))


def patched(
    grid: Grid[Part], model: Model, clean: Batch, corrupt: Batch
) -> Measurement:
    return patch_sweep(model, clean, corrupt, grid, reading(clean))


def knocked_out(model: Model, clean: Batch, _corrupt: Batch) -> Measurement:
    grid = edge_grid(LAYERS, HEADS, queries="last", keys="it")
    return knockout_sweep(model, clean, grid, reading(clean))


def paired_edges(model: Model, clean: Batch, _corrupt: Batch) -> Tensor:
    with (
        torch.no_grad(),
        knock_out(model, clean, [Edges(1, "last", "it", paired=True)]),
    ):
        return answer_logits(model, clean)


def paths(grid: Grid[Path], model: Model, clean: Batch, corrupt: Batch) -> Measurement:
    return path_patch_sweep(model, clean, corrupt, grid, reading(clean))


def attributed(model: Model, clean: Batch, corrupt: Batch) -> Measurement:
    return logit_attribution(model, clean, corrupt.targets.flip(0) + 1)


def measured(model: Model, clean: Batch, corrupt: Batch) -> Tensor:
    """Rows, masses, positions and logits, over batches of two sizes."""

    def same(activation: Tensor, _batch: Any) -> Tensor:
        return activation

    signals = {
        "mass": Signal("pattern", same, ("head", "query", "set"), keys=("it", "last")),
        "rows": Signal("pattern", same, ("head", "query", "key"), at="last"),
        "both": Signal("pattern", same, ("head", "query", "set"), "", "it", ("last",)),
        "whole": Signal("pattern", same, ("head", "query", "key")),
        "state": Signal("resid_post", same, ("position", "d"), at="it"),
        "logit": Signal("logits", same, ("position", "token"), at="last"),
    }
    found = measure(model, [clean, corrupt.rows(slice(2))], signals)
    return torch.cat([found[name].values.flatten() for name in signals])


SENDER = Part("attn_out", 0)
"""Not a head: those of gemma2 join the residual through a norm of their sum."""
VIEWS: dict[str, View] = {
    "zero": partial(ablated, lambda _: Zero()),
    "mean of tokens": partial(ablated, lambda other: Mean([other])),
    "mean of prompts": partial(
        unpadded, partial(ablated, lambda other: Mean([other], "examples"))
    ),
    "resample": partial(unpadded, partial(ablated, lambda o: Resample(o, 0))),
    "transplant": partial(ablated, Transplant),
    "knock-out": knocked_out,
    "paired edges": paired_edges,
    "patch positions": partial(patched, position_grid("resid_pre", LAYERS, range(5))),
    "patch roles": partial(patched, position_grid("mlp_out", LAYERS, ["it", "last"])),
    "patch heads": partial(patched, head_grid("head_out", LAYERS, HEADS)),
    "patch patterns": partial(patched, head_grid("pattern", LAYERS, HEADS)),
    "paths to heads": partial(paths, paths_by_head(SENDER, [1], HEADS)),
    "paths to all": partial(
        paths,
        Grid(
            {"to": (*range(len(READERS)),)}, tuple(Path(SENDER, to) for to in READERS)
        ),
    ),
    "attribution": attributed,
    "measure": measured,
}


def seen(view: View, name: str, place: torch.device) -> Tensor:
    found = view(opened(name, place), *pair(name, place))
    values = found.values if isinstance(found, Measurement) else found
    return values.cpu()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", VIEWS)
def test_it_is_the_same(name: str, model: str) -> None:
    here = seen(VIEWS[name], model, torch.device("cpu"))
    with standin.device() as place:
        there = seen(VIEWS[name], model, place)
    assert here.isfinite().all()
    assert here.abs().max() > 0
    torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)
