"""The sizes of the symbols study. Symbols in brackets are the paper's."""

from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Literal

from trained.config import Preset, require

from .language_sizes import Language
from .tasks import task

Variant = Literal["controls", "both", "mimetic", "recurrent", "last_layer"]
"""Depth 1 and a random orthogonal matrix instead of the identity; b alone and both
scalars; W_K W_Q^T started near the identity; an RNN and an LSTM; training the head
only, at several scales of the frozen weights."""


_COUNTS = (
    *("d_model", "depth", "n_heads", "d_head", "epochs", "max_steps", "batch_size"),
    *("n_test", "copy_steps", "copy_batch", "recall_d", "recall_depth", "recall_steps"),
)


@dataclass(frozen=True)
class Config:
    """One setting of the study; vanilla and +aI models are always both trained."""

    task: str = "same_different"
    """A real-label task: a name, or rules such as `aab -> 1 | aba -> -1`."""
    n: tuple[int, ...] = (16, 64, 256, 1024)
    """Training strings [n], and as many training symbols."""
    other_tasks: tuple[str, ...] = ()
    """Further real-label tasks, each at the n nearest to 512."""
    d_model: int = 64
    """Width of the transformers on real-label tasks [d]."""
    depth: int = 2
    """Their layers."""
    n_heads: int = 4
    d_head: int = 16
    multiplier: float = 10.0
    """Factor on the trained scalars a and b; it decides how fast they can grow."""
    lrs: tuple[float, ...] = (1e-3, 3e-3)
    """Adam's learning rates; each model takes the best on validation."""
    epochs: int = 300
    max_steps: int = 300
    """Training ends after the epochs or these steps, whichever comes first."""
    batch_size: int = 128
    n_test: int = 200
    """Strings of the test split; validation has 100."""
    held_out_symbols: int = 100
    """Symbols of the validation alphabet, and of the test alphabet."""
    copy_d: tuple[int, ...] = (32, 256)
    """Widths of the models that copy a symbol."""
    copy_n: tuple[int, ...] = (32, 128)
    """Their training strings; the paper's Figure 5."""
    copy_steps: int = 250
    copy_batch: int = 128
    copy_lrs: tuple[float, ...] = (3e-3,)
    recall_task: str = "recall"
    """The symbolic-label task of Figure 2; used where `recall_n` is not empty."""
    recall_n: tuple[int, ...] = ()
    recall_d: int | None = None
    """Width of the models that recall; None for d_model."""
    recall_depth: int | None = None
    """Their layers; None for depth."""
    recall_steps: int = 500
    variants: tuple[Variant, ...] = ("controls",)
    kernel_tasks: tuple[str, ...] = ("same_different", "majority-4")
    """Real-label tasks without regular tokens whose kernel matrix N is computed; the
    first is also solved by kernel regression."""
    kernel_n: tuple[int, ...] = (64, 256, 1024)
    """Training strings of kernel regression."""
    theory_d: tuple[int, ...] = (16, 64, 256, 1024)
    """Widths at which the first step of copying is computed."""
    language: Language = "tiny"
    """The language models of Figure 6, on the sources of Python's library."""
    language_steps: int = 120

    def __post_init__(self) -> None:
        self._check_tasks()
        self._check_theory()
        for name in ("n", "lrs", "copy_d", "copy_n", "copy_lrs"):
            require(bool(getattr(self, name)), f"{name} is empty")
        for name in ("n", "lrs", "copy_d", "copy_n", "copy_lrs", "recall_n"):
            given = getattr(self, name)
            require(all(x > 0 for x in given), f"{name}={given}: must be positive")
            rising = all(a < b for a, b in pairwise(given))
            require(rising, f"{name}={given}: must rise")
        for name in _COUNTS:
            count = getattr(self, name)
            require(count is None or count >= 1, f"{name}={count}: at least 1")
        require(self.multiplier > 0, f"multiplier={self.multiplier}: must be positive")

    def _check_tasks(self) -> None:
        given = (self.task, *self.other_tasks)
        require(len(set(given)) == len(given), f"tasks {given}: one twice")
        for name in (self.task, *self.other_tasks):
            kind = task(name).kind
            require(kind == "real", f"task '{name}': its labels must be numbers")
        recall = task(self.recall_task)
        symbolic = recall.kind == "symbolic"
        require(symbolic, f"recall_task '{recall.name}': its labels must be symbols")
        told = zip(recall.templates, recall.labels, strict=True)
        shown = all(label in template.symbols for template, label in told)
        require(shown, f"recall_task '{recall.name}': every label in its template")
        require(
            "mimetic" not in self.variants or self.d_head <= self.d_model,
            f"d_head={self.d_head}: at most d_model={self.d_model} for mimetic",
        )
        for name in (self.task, *self.other_tasks, self.recall_task):
            need = task(name).n_wildcards
            require(
                self.held_out_symbols >= need,
                f"held_out_symbols={self.held_out_symbols}: task {name} needs {need}",
            )

    def _check_theory(self) -> None:
        given = self.kernel_tasks
        require(bool(given), "kernel_tasks is empty")
        require(len(set(given)) == len(given), f"kernel_tasks={given}: one twice")
        for name in self.kernel_tasks:
            found = task(name)
            wild = found.kind == "real" and not found.regular
            require(wild, f"kernel task '{name}': numbers for wildcards only")
            size, length = len(found.templates), found.length
            require(size <= 8, f"kernel task '{name}': {size} templates, at most 8")
            require(length <= 14, f"kernel task '{name}': length {length}, at most 14")
        for name in ("kernel_n", "theory_d"):
            given = getattr(self, name)
            rising = all(a < b for a, b in pairwise(given))
            require(rising and bool(given), f"{name}={given}: must rise")
        require(self.kernel_n[0] >= 2, f"kernel_n={self.kernel_n}: at least 2")
        ends = 1 <= self.theory_d[0] <= 32 and self.theory_d[-1] >= 256
        require(ends, f"theory_d={self.theory_d}: from at most 32 to at least 256")
        require(self.language_steps >= 1, f"language_steps={self.language_steps}: >= 1")

    @property
    def compared_n(self) -> int:
        """The n nearest to 256, where models are compared and opened."""
        return min(self.n, key=lambda n: abs(log(n / 256)))

    @property
    def identity_n(self) -> tuple[int, ...]:
        """Where +aI is trained; like the paper's, its curve ends at about 256."""
        return tuple(n for n in self.n if n <= self.compared_n)

    @property
    def compared_copy_n(self) -> int:
        """The n of copying that is nearest to 128, where models are opened."""
        return min(self.copy_n, key=lambda n: abs(log(n / 128)))

    @property
    def other_n(self) -> int:
        """The n nearest to 512, where other tasks are run."""
        return min(self.n, key=lambda n: abs(log(n / 512)))


QUICK = Config()

PAPER = Config(
    n=(16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    other_tasks=("aba_abb", "majority-4", "figure1"),
    d_model=128,
    n_heads=16,
    d_head=64,
    lrs=(3e-4, 1e-3, 3e-3),
    epochs=1000,
    max_steps=8000,
    batch_size=1024,
    n_test=400,
    copy_d=(64, 128, 256, 512, 1024, 2048, 4096),
    copy_n=(16, 32, 64, 128, 256, 512, 1024, 2048),
    copy_steps=1000,
    recall_n=(1024, 4096, 8192, 65536, 262144),
    recall_d=512,
    recall_depth=4,
    recall_steps=8000,
    variants=("controls", "both", "mimetic", "recurrent", "last_layer"),
    theory_d=(16, 64, 256, 1024, 2048),
    language="large",
    language_steps=4000,
)

ZOO = Config(
    n=(64, 256),
    d_model=48,
    lrs=(3e-3,),
    held_out_symbols=40,
    copy_d=(16, 48),
    copy_n=(32,),
    recall_n=(4096,),
    variants=(),
    theory_d=(16, 256),
    language="none",
)
"""Small enough to ship."""

PRESETS = {
    "quick": Preset(QUICK, n_seeds=3, cost="about two minutes"),
    "paper": Preset(PAPER, n_seeds=5, cost="days; for a GPU, untested there"),
    "zoo": Preset(ZOO, n_seeds=1, cost="about two minutes; the shipped run"),
}
