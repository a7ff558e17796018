"""A patching sweep of 12 layers x 16 positions: ours, one at a time, TransformerLens.

    python -m scripts.bench patching

One pair of prompts, residuals before every block, the logit difference at the last
token. "One at a time" is a whole forward pass for every cell, with the logits of all
positions or of the last one.
"""

from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch import Tensor
from transformer_lens import patching

from circuits.hooks import intervene
from circuits.interventions.edit import Transplant, part_edits
from circuits.interventions.part import Grid, Part, position_grid
from circuits.interventions.passes import answer_logits
from circuits.interventions.patching import patch_sweep
from circuits.interventions.sweep import Reading, logit_difference
from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from trained.task import Batch

from .bench_model import GPT2_SMALL, Size, opened, prompts
from .bench_timing import Line, interleaved, ratio

LENGTH = 16
WRONG = 6
OURS, WHOLE, LAST, LENS = "ours", "full logits", "last logits", "TransformerLens"


def pair(size: Size) -> tuple[Batch, Batch]:
    """Two prompts that differ at every position."""
    clean, corrupt = (prompts(size, 1, LENGTH, seed) for seed in (0, 1))
    return clean, corrupt.with_targets(clean.targets)


def cells(size: Size) -> Grid[Part]:
    """Every layer and position."""
    return position_grid("resid_pre", range(size.n_layers), range(LENGTH))


def metric(wrong: int = WRONG) -> Any:
    """The target's logit minus that of a wrong answer."""
    return logit_difference(torch.tensor([wrong]))


def ours(
    model: LanguageModel, clean: Batch, corrupt: Batch, grid: Grid[Part]
) -> Tensor:
    """Cells as branches of one stored run."""
    return patch_sweep(model, clean, corrupt, grid, Reading(metric())).values.flatten()


@torch.no_grad()
def one_at_a_time(
    model: LanguageModel, clean: Batch, corrupt: Batch, grid: Grid[Part], *, whole: bool
) -> Tensor:
    """A whole pass for every cell."""
    edits = part_edits(model, corrupt, grid.items, Transplant(clean))
    found = []
    for part in grid.items:
        with intervene(model, {part.site: edits[part]}):
            if whole:
                logits = model(corrupt.tokens, corrupt.mask)[:, -1]
            else:
                logits = answer_logits(model, corrupt)
            found.append(metric()(logits, corrupt))
    return torch.cat(found)


@torch.no_grad()
def by_transformer_lens(bridge: Any, clean: Batch, corrupt: Batch) -> Tensor:
    """TransformerLens' own sweep, on its bridge of the same weights."""
    right = int(clean.targets)

    def difference(logits: Tensor) -> Tensor:
        return logits[0, -1, right] - logits[0, -1, WRONG]

    _, cache = bridge.run_with_cache(clean.tokens)
    # Its progress bar cannot be switched off.
    with redirect_stderr(StringIO()):
        found = patching.get_act_patch_resid_pre(
            bridge, corrupt.tokens, cache, difference
        )
    return found.flatten()


def lines(size: Size = GPT2_SMALL, rounds: int = 2) -> Iterator[Line]:
    """Every line of the table."""
    torch.set_num_threads(1)
    model = opened(size)
    bridge = wrap(model.module, None, backend="bridge").module
    (clean, corrupt), grid = pair(size), cells(size)
    runs = {
        OURS: lambda: ours(model, clean, corrupt, grid),
        WHOLE: lambda: one_at_a_time(model, clean, corrupt, grid, whole=True),
        LAST: lambda: one_at_a_time(model, clean, corrupt, grid, whole=False),
        LENS: lambda: by_transformer_lens(bridge, clean, corrupt),
    }
    values = {name: run().cpu() for name, run in runs.items()}
    for name, found in values.items():
        error = (found - values[WHOLE]).abs().max() / values[WHOLE].abs().max()
        if error > 1e-5:
            raise AssertionError(f"{name} is off by {error:.1e}")
        yield Line(f"{name}: largest difference to one at a time", float(error))
    timed = interleaved(runs, rounds)
    for name in (WHOLE, LAST, LENS):
        key = "patching.speedup" if name == WHOLE else ""
        aim = ">= 8" if key else ""
        yield Line(f"one at a time, {name} / ours", ratio(timed, name, OURS), key, aim)
