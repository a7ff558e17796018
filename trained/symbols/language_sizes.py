"""Sizes of the language-model experiment, by name; free of torch."""

from dataclasses import dataclass
from typing import Literal

Language = Literal["none", "tiny", "small", "large"]
"""Which language models are trained, if any."""


@dataclass(frozen=True)
class LanguageSizes:
    """A causal word-level model and the text that it is trained on."""

    d_model: int
    n_layers: int
    n_heads: int
    context: int
    """Words that a prediction can see."""
    batch_size: int
    d_vocab: int
    """The most frequent words, and one token for all others."""
    train_words: int
    held_out_words: int
    lr: float


SIZES: dict[Language, LanguageSizes] = {
    "tiny": LanguageSizes(32, 2, 2, 32, 16, 512, 200_000, 8_000, 3e-3),
    "small": LanguageSizes(64, 2, 4, 64, 16, 2048, 1_000_000, 30_000, 3e-3),
    "large": LanguageSizes(256, 4, 8, 128, 16, 8192, 1_500_000, 100_000, 1e-3),
}
