"""A patching sweep of 12 layers x 16 positions: ours, one at a time, TransformerLens.

    python -m scripts.bench_patching

The model has GPT-2 small's shape at half its width and vocabulary, with random weights;
one pair of prompts, residuals before every block, the logit difference at the last
token. Prints processor time relative to ours and the largest difference of the values.
Ours is measured before and after the others, so that a busy machine shows.
"""

import time
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch import Tensor
from transformer_lens import patching
from transformers import GPT2Config, GPT2LMHeadModel

from circuits.hooks import Model, intervene
from circuits.interventions.edit import Transplant, part_edits
from circuits.interventions.part import position_grid
from circuits.interventions.passes import answer_logits
from circuits.interventions.patching import patch_sweep
from circuits.interventions.sweep import Reading, logit_difference
from circuits.models.open import wrap
from trained.seeding import generator
from trained.task import Batch

N_LAYERS, LENGTH, D_VOCAB = 12, 16, 25_128
CONFIG = GPT2Config(
    n_layer=N_LAYERS,
    n_head=12,
    n_embd=384,
    vocab_size=D_VOCAB,
    n_positions=64,
    bos_token_id=0,
    eos_token_id=0,
)
GRID = position_grid("resid_pre", range(N_LAYERS), range(LENGTH))
RIGHT, WRONG = 5, 6


def ours(model: Model, clean: Batch, corrupt: Batch) -> Tensor:
    """Many cells in a pass, which starts at the patched block."""
    reading = Reading(logit_difference(torch.tensor([WRONG])))
    return patch_sweep(model, clean, corrupt, GRID, reading).values[..., 0]


@torch.no_grad()
def one_at_a_time(model: Model, clean: Batch, corrupt: Batch) -> Tensor:
    """A whole pass for every cell."""
    metric = logit_difference(torch.tensor([WRONG]))
    edits = part_edits(model, corrupt, GRID.items, Transplant(clean))
    found = []
    for part, edit in edits.items():
        with intervene(model, {part.site: edit}):
            found.append(metric(answer_logits(model, corrupt), corrupt))
    return torch.cat(found).reshape(N_LAYERS, LENGTH)


@torch.no_grad()
def by_transformer_lens(bridge: Any, clean: Batch, corrupt: Batch) -> Tensor:
    """TransformerLens' own sweep, on its bridge of the same weights."""

    def metric(logits: Tensor) -> Tensor:
        return logits[0, -1, RIGHT] - logits[0, -1, WRONG]

    _, cache = bridge.run_with_cache(clean.tokens)
    # Its progress bar cannot be switched off.
    with redirect_stderr(StringIO()):
        return patching.get_act_patch_resid_pre(bridge, corrupt.tokens, cache, metric)


def timed(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Processor seconds of a run, and its values."""
    started = time.process_time()
    values = run()
    return time.process_time() - started, values


def main() -> None:
    """Run the three sweeps and print them relative to ours."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(CONFIG).eval()
    bridge = wrap(model, None, backend="bridge").module
    tokens = torch.randint(D_VOCAB, (2, 1, LENGTH), generator=generator(0, "bench"))
    clean, corrupt = (Batch(rows, torch.tensor([RIGHT])) for rows in tokens)
    ours(model, clean, corrupt)

    first, values = timed(lambda: ours(model, clean, corrupt))
    others = {
        "one at a time": timed(lambda: one_at_a_time(model, clean, corrupt)),
        "TransformerLens": timed(lambda: by_transformer_lens(bridge, clean, corrupt)),
    }
    second, _ = timed(lambda: ours(model, clean, corrupt))
    base = (first + second) / 2
    print(f"ours: {first:.2f} s and {second:.2f} s for {values.numel()} cells")
    for name, (seconds, theirs) in others.items():
        difference = float((theirs - values).abs().max())
        print(
            f"{name}: {seconds / base:.1f}x the time, values differ by {difference:.0e}"
        )


if __name__ == "__main__":
    main()
