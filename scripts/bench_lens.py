"""The logit lens at every layer and position: the target's column, or the vocabulary.

    python -m scripts.bench lens

The forward pass is left out of both; then the target's lens with its forward pass,
against the forward pass alone.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from circuits.backends.anatomy import Readout
from circuits.hooks import Signal, measure
from circuits.inspection.subject import residual_layers
from circuits.interventions.passes import activations
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from probes.lens import lens_log_probs
from trained.task import Batch

from .bench_extraction import forward, target_logit
from .bench_model import GPT2_SMALL, Size, opened, prompts
from .bench_timing import Line, interleaved, ratio

TARGET, WHOLE = "target column", "whole vocabulary"
WITH_LENS, PLAIN, FLOOR = "forward and target lens", "forward", "forward, last logits"


def target_columns(readout: Readout, layers: list[Tensor], batch: Batch) -> Tensor:
    """The target's logit, at every layer and position."""
    return torch.stack([target_logit(readout, states, batch) for states in layers])


def vocabulary(readout: Readout, layers: list[Tensor], batch: Batch) -> Tensor:
    """The target's log-probability, one layer's vocabulary at a time."""
    index = batch.targets[:, None, None].expand(*layers[0].shape[:-1], 1)
    found = [lens_log_probs(states, readout.logits) for states in layers]
    return torch.stack([log_probs.gather(-1, index)[..., 0] for log_probs in found])


def measured(model: LanguageModel, batch: Batch) -> object:
    """The target's lens, riding on a forward pass."""
    lens = Signal("resid_post", partial(target_logit, model.readout), ("position",))
    return measure(model, [batch], {"lens": lens})


@torch.no_grad()
def lines(size: Size = GPT2_SMALL, rounds: int = 3) -> Iterator[Line]:
    """Every line of the table."""
    torch.set_num_threads(1)
    model = opened(size)
    batch = prompts(size, 1, min(128, size.n_ctx))
    sites = [Site("resid_post", layer) for layer in residual_layers(model)]
    layers = list(activations(model, batch, sites).values())
    lens = {TARGET: target_columns, WHOLE: vocabulary}
    runs = {n: partial(run, model.readout, layers, batch) for n, run in lens.items()}
    speed = ratio(interleaved(runs, rounds), WHOLE, TARGET)
    yield Line(f"{WHOLE} / {TARGET}", speed, "lens.target_speedup", ">= 20")
    passes = {
        WITH_LENS: partial(measured, model, batch),
        PLAIN: partial(forward(model.module), batch),
        FLOOR: partial(forward(model.module, logits_to_keep=1), batch),
    }
    timed = interleaved(passes, rounds)
    over = ratio(timed, WITH_LENS, PLAIN)
    yield Line(f"{WITH_LENS} / {PLAIN}", over, "lens.time_over_forward", "<= 1.05")
    yield Line(f"{WITH_LENS} / {FLOOR}", ratio(timed, WITH_LENS, FLOOR))
