"""What looking at a prompt costs, before it is begun: bytes, and cells of a sweep."""

import time

import torch

from circuits.models.language_model import LanguageModel, behind
from trained.errors import BadInput
from trained.memory import free_bytes

from .one_pass import QUERIES_AT_ONCE

MOST_CELLS = 4096
"""Cells of a sweep that are begun without being asked for by name."""

SAMPLE = 32
"""Tokens of the pass that is timed for an estimate."""

SINGLE = 4
"""Bytes of a number in single precision, in which signals are computed."""


def bytes_needed(model: LanguageModel, tokens: int, shown: int, queries: int) -> int:
    """About what a pass over a prompt and its readings hold, beside the weights.

    Args:
        model: the model.
        tokens: of the prompt.
        shown: positions whose rows are looked at.
        queries: tokens whose whole rows are kept.
    """
    backend, hf = behind(model.module)
    config = hf.config.get_text_config(decoder=True)
    layers, heads = model.n_layers, model.n_heads
    width = config.hidden_size // config.num_attention_heads
    d_head = getattr(config, "head_dim", None) or width
    inner = getattr(config, "intermediate_size", None) or 4 * model.d_model
    size = model.readout.unembedding.element_size()
    stream = (layers + 1) * tokens * model.d_model * size
    # Its input and output, and of the MLP three inner vectors.
    block = tokens * (4 * model.d_model + 3 * inner) * size
    # Scores, weights and their mask, of the rows in flight; keys for every head.
    flight = min(shown, QUERIES_AT_ONCE)
    rows = heads * tokens * (3 * flight + 2 * d_head) * SINGLE
    kept = layers * heads * (queries * tokens + shown * shown) * SINGLE
    # Windows need a mask of every query by every key; others than hf whole patterns.
    mask = 5 * tokens * tokens if getattr(config, "sliding_window", None) else 0
    if backend != "hf":
        mask += 3 * heads * tokens * tokens * SINGLE
    # Three copies of the stream of one layer are centred and compared.
    readings = 3 * tokens * model.d_model * SINGLE + (layers + 1) * shown * 2**12
    return stream + block + rows + kept + mask + readings


def require_room(model: LanguageModel, tokens: int, shown: int, queries: int) -> None:
    """`BadInput` if a prompt needs more memory than there is."""
    needed = bytes_needed(model, tokens, shown, queries)
    free = free_bytes(str(model.device))
    if free is not None and needed > free:
        raise BadInput(
            f"a prompt of {tokens} tokens needs about {_gigabytes(needed)} beside the "
            f"weights of {model.name}; {_gigabytes(free)} are free: shorten it, or "
            "name fewer roles and --positions"
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2g} GB"


@torch.no_grad()
def require_few_cells(model: LanguageModel, tokens: int, cells: int) -> None:
    """`BadInput` with an estimate if a sweep is longer than one would wait for."""
    if cells <= MOST_CELLS:
        return
    few = torch.zeros(1, min(SAMPLE, tokens), dtype=torch.long, device=model.device)
    begun = time.perf_counter()
    model(few)
    each = (time.perf_counter() - begun) * tokens / few.shape[1]
    # A patch is felt by the layers behind it: half of them, on average.
    raise BadInput(
        f"patching {cells} cells of {tokens} tokens takes about "
        f"{_duration(cells * each / 2)}; name fewer than {MOST_CELLS} by --positions "
        "(roles, phrases or columns)"
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
