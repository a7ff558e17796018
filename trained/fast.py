"""Faster steps on an accelerator, where its user asks for them.

They change the last digits, or more, of what is trained, so a run keeps in its manifest
what was asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .arm import Data, Quantity
from .errors import BadInput, unknown

FAST = {
    "tf32": "matrix products of float32 with mantissas of 10 bits (CUDA)",
    "bf16": "losses under autocast in bfloat16; weights and optimiser stay float32",
    "compile": "losses through torch.compile",
    "graphs": "compile, replayed as CUDA graphs (CUDA)",
}
ONLY_CUDA = ("tf32", "graphs")

Losses = Callable[[Quantity, Data], Float[Tensor, " seed"]]


def check_fast(names: Sequence[str], device: str) -> None:
    """Refuse what there is not, and what a device does not have."""
    for name in names:
        if name not in FAST:
            raise unknown("way to be fast", name, FAST)
        if name in ONLY_CUDA and torch.device(device).type != "cuda":
            raise BadInput(f"--fast {name} needs a CUDA device, not {device}")


def losses_by(values: Losses, names: Sequence[str], device: str) -> Losses:
    """A function like `Ensemble.values`, computed in the ways that were asked for."""
    compiled: Any = values
    if "graphs" in names:
        compiled = torch.compile(values, mode="reduce-overhead")
    elif "compile" in names:
        compiled = torch.compile(values)
    if not names:
        return values
    kind = torch.device(device).type

    def losses(quantity: Quantity, data: Data) -> Tensor:
        if "graphs" in names:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with torch.autocast(kind, torch.bfloat16, enabled="bf16" in names):
            found: Tensor = compiled(quantity, data)
        # A graph writes its next answer where this one is.
        return found.to(torch.promote_types(found.dtype, torch.float32), copy=True)

    return losses


@contextmanager
def matmul_precision(names: Sequence[str]) -> Iterator[None]:
    """Let matrix products be those of TF32 in the block, if that was asked for."""
    before = torch.get_float32_matmul_precision()
    if "tf32" in names:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
