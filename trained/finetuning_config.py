"""How a pretrained model is fine-tuned on facts. Free of torch."""

from dataclasses import dataclass
from typing import Literal

from .config import require


@dataclass(frozen=True)
class FineTuning:
    """AdamW on lists of facts; the defaults are those of the papers' full runs."""

    epochs: int = 10
    """Passes over the facts of every phase."""
    batch_size: int = 16
    lr: float = 2e-5
    weight_decay: float = 0.0
    clip: float = 1.0
    """Largest norm of the gradient."""
    last_layers: int | None = None
    """Train only this many blocks, the last ones; None: every parameter."""
    autocast: Literal["none", "bfloat16"] = "none"
    """What the forward pass computes in; the weights stay float32."""

    def __post_init__(self) -> None:
        require(self.epochs >= 1, f"epochs = {self.epochs} must be at least 1")
        require(self.batch_size >= 1, f"batch_size = {self.batch_size} must be >= 1")
        require(self.lr > 0, f"lr = {self.lr} must be positive")
        require(self.clip > 0, f"clip = {self.clip} must be positive")
        layers = self.last_layers
        require(layers is None or layers >= 1, f"last_layers = {layers} must be >= 1")


LIGHT = FineTuning(epochs=10, batch_size=16, lr=2e-4, last_layers=8)
"""What a CPU can do for a model of 135 million parameters: about twenty seconds for
forty facts. The rate is ten times the papers' because fewer parameters are trained.
The studies' default; `FineTuning()` is the papers' own, for a GPU."""
