"""How a pretrained model is fine-tuned. Free of torch."""

import re
from dataclasses import dataclass
from math import isfinite

from trained.config import require

PARTS = re.compile(r"all|last:([1-9]\d*)|lora:([1-9]\d*)")


@dataclass(frozen=True)
class Tuning:
    """AdamW on lists of facts; what a paper says of its own is in its study's presets.

    The weights keep the type that the model was opened with. Full fine-tuning holds 12
    bytes a parameter in float32 (weight 4, gradient 4, bfloat16 moments 4) and 10 in
    bfloat16 (weight 2, what rounding took from it 2, gradient 2, moments 4); LoRA holds
    the frozen weights, and 12 bytes for each number of an adapter.
    """

    epochs: int = 10
    """Passes over the facts of every phase."""
    batch_size: int = 16
    """Facts of a step, at most."""
    accumulate: int = 1
    """Parts that a batch is computed in, one after the other, to save memory."""
    lr: float = 2e-5
    """AdamW's learning rate, constant."""
    weight_decay: float = 0.0
    """Of AdamW; 0: none."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    layers: str = "all"
    """What is trained: `all`, `last:N` blocks, or `lora:R`, adapters of rank R on every
    linear map of the frozen model (needs the extra `peft`)."""
    checkpointing: bool = False
    """Compute each block twice instead of keeping its activations."""
    keep: bool = False
    """Store the tuned weights too, as a folder that `open` and transformers read;
    otherwise only what was measured on them."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)}: >= 1")
        for name in ("lr", "clip"):
            number = getattr(self, name)
            require(isfinite(number) and number > 0, f"{name}={number}: positive")
        require(self.weight_decay >= 0, f"weight_decay={self.weight_decay}: >= 0")
        known = PARTS.fullmatch(self.layers)
        require(known is not None, f"layers={self.layers}: all, last:N or lora:R")

    @property
    def last(self) -> int | None:
        """How many of the last blocks are trained, if that is what is trained."""
        return self._number(1)

    @property
    def rank(self) -> int | None:
        """The rank of the adapters, if these are trained."""
        return self._number(2)

    def _number(self, group: int) -> int | None:
        found = PARTS.fullmatch(self.layers)
        return int(found[group]) if found and found[group] else None
