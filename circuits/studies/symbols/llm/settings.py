"""The sizes of the experiments on language models."""

from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite

from trained.config import Preset, require


@dataclass(frozen=True)
class Perplexity:
    """A GPT-2 trained from scratch on plain text; used where files are given."""

    train_file: str | None = None
    """Plain text to train on, UTF-8."""
    valid_file: str | None = None
    """Plain text that is held out."""
    config: str | None = None
    """A local directory or hub name whose sizes and tokenizer are taken, such as
    `gpt2`; None for the sizes below and a vocabulary of words."""
    n_layers: int = 2
    """Transformer blocks."""
    d_model: int = 64
    """Width of the residual stream."""
    n_heads: int = 4
    """Attention heads of a block."""
    context: int = 64
    """Tokens of a block [1024]."""
    vocabulary: int = 2048
    """Words: the most frequent of the training text; the rest is one unknown word."""
    batch_size: int = 16
    """Blocks of a step; the authors' code has 8."""
    steps: int = 400
    """AdamW steps."""
    evaluate_every: int = 100
    """Steps between two looks at the held-out text."""
    lr: float = 3e-3
    """AdamW, constant; the authors' code has 3e-4."""
    multiplier: float = 1.0
    """Factor on the scalars a and b."""
    n_seeds: int = 5
    """Paired runs, at least."""

    def __post_init__(self) -> None:
        for name in ("n_layers", "d_model", "n_heads", "context", "vocabulary"):
            require(getattr(self, name) >= 1, f"{name}: at least 1")
        for name in ("batch_size", "steps", "evaluate_every", "n_seeds"):
            require(getattr(self, name) >= 1, f"{name}: at least 1")
        for name in ("lr", "multiplier"):
            number = getattr(self, name)
            require(isfinite(number) and number > 0, f"{name}={number}: positive")
        both = (self.train_file is None) == (self.valid_file is None)
        require(both, "give train_file and valid_file, or neither")


@dataclass(frozen=True)
class FineTune:
    """A pretrained model fine-tuned on a template task; used where n is given."""

    task: str = "aba_abb"
    """A real-label task, of the strings that are drawn from the model's words."""
    n: tuple[int, ...] = ()
    """Training strings."""
    many: tuple[int, ...] = ()
    """More, at which the re-initialised model alone is trained besides."""
    lrs: tuple[float, ...] = (1e-5, 3e-5, 1e-4)
    """Adam's rates; the paper gives none. Each model takes the best on validation."""
    steps: int = 40
    """Steps at each rate."""
    batch_size: int = 32
    """Strings of a step, at most."""
    accumulate: int = 1
    """Parts that a batch is computed in, one after the other, to save memory."""
    evaluate_every: int = 10
    """Steps between two looks at validation; the best one counts."""
    n_held_out: int = 64
    """Strings of the validation split, and of the test split."""
    n_seeds: int = 3
    """Of the seeds, how many fine-tune."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "evaluate_every"):
            require(getattr(self, name) >= 1, f"{name}: at least 1")
        for name in ("n_held_out", "n_seeds"):
            require(getattr(self, name) >= 1, f"{name}: at least 1")
        sizes = (*self.n, *self.many)
        rising = all(a < b for a, b in pairwise(sizes))
        require(rising and all(n >= 2 for n in sizes), f"n={sizes}: must rise from 2")
        rates = self.lrs
        require(
            bool(rates) and all(isfinite(r) and r > 0 for r in rates), f"lrs={rates}"
        )


@dataclass(frozen=True)
class Settings:
    """Sizes of the experiment on a language model."""

    n_draws: int = 12
    """Random programs of each kind of words; every one is printed twice."""
    n_cut: int = 12
    """How many of the printed programs are run again for each surgery."""
    n_choose: int = 12
    """Random programs that markers and heads are chosen on."""
    choosing_seed: int = 10_007
    """Draws the programs to choose on."""
    n_words: int = 400
    """Words at either end of the vocabulary."""
    competent: float = 0.75
    """Accuracy below which rare words are not compared with frequent ones."""
    copies: float = 0.5
    """A copying score above this makes a copying head."""
    surgery_share: float = 0.1
    """Share of heads whose identity part is taken off."""
    at_once: int = 16
    """Programs in one pass."""
    perplexity: Perplexity = field(default_factory=Perplexity)
    finetune: FineTune = field(default_factory=FineTune)

    def __post_init__(self) -> None:
        for name in ("n_draws", "n_cut", "n_choose", "n_words", "at_once"):
            count = getattr(self, name)
            require(count >= 1, f"{name}={count}: at least 1")
        fits = 0 < self.surgery_share <= 1
        require(fits, f"surgery_share={self.surgery_share}: in (0, 1]")


PRESETS = {
    "quick": Preset(
        Settings(), n_seeds=3, cost="about two minutes on SmolLM2; fine-tunes nothing"
    ),
    "cpu": Preset(
        Settings(finetune=FineTune(n=(32, 128), many=(320,))),
        n_seeds=3,
        cost="about an hour on SmolLM2 (2,900 steps of 1.7 CPU seconds); resumable",
    ),
    "paper": Preset(
        Settings(
            perplexity=Perplexity(
                config="gpt2",
                context=1024,
                batch_size=8,
                steps=29_000,
                lr=3e-4,
            ),
            finetune=FineTune(n=(4, 8, 16, 32, 64, 128, 256, 512), many=(4096, 8192)),
        ),
        n_seeds=5,
        cost="for a GPU, not run here; perplexity with files (100 epochs)",
    ),
}
