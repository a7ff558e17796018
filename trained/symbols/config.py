"""The sizes of the symbols study. Symbols in brackets are the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from typing import Any, Literal

from trained.config import Preset, require

from .tasks import task

Variant = Literal["rotated", "depth1", "both", "mimetic", "recurrent", "last_layer"]
"""A random orthogonal matrix instead of the identity; one layer; b alone and both
scalars; W_K W_Q^T started near the identity; an RNN and an LSTM; training the head
only, at several scales of the frozen weights."""


@dataclass(frozen=True)
class Shape:
    """The networks on real-label tasks."""

    d_model: int = 64
    """Width of the transformers [d]."""
    depth: int = 2
    """Their layers."""
    n_heads: int = 4
    d_head: int = 16
    mlp_ratio: int = 2
    """Width of their MLPs over d_model, here and where a value is recalled."""
    perceptron: int = 128
    """Width of the networks that are only an MLP."""
    mimetic_weight: float = 0.7
    """Of the identity, and of the noise, where W_K W_Q^T starts near the identity."""
    head_scales: tuple[float, ...] = (1.0, 8.0, 64.0)
    """Factors on the frozen weights where only the head is trained."""

    def __post_init__(self) -> None:
        _at_least_one(
            self, "d_model", "depth", "n_heads", "d_head", "mlp_ratio", "perceptron"
        )
        require(len(self.head_scales) == 3, f"head_scales={self.head_scales}: three")


@dataclass(frozen=True)
class Training:
    """How the real-label tasks are trained, and by which strings they are scored."""

    lrs: tuple[float, ...] = (1e-3, 3e-3)
    """Adam's learning rates; each model takes the best on validation."""
    epochs: int = 300
    max_steps: int = 300
    """Training ends after the epochs or these steps, whichever comes first."""
    batch_size: int = 128
    stop_below: float = 5e-4
    """A seed stops once its training error is below this."""
    mlp_stop_below: float = 1e-4
    """Lower for MLPs, which are judged only where they fit: a batch is not all
    strings."""
    record_every: int = 10
    """Steps between scores, or a hundredth of all if that is more."""
    n_validation: int = 100
    """Strings of the validation split."""
    n_test: int = 200
    """Strings of the test split."""
    held_out_symbols: int = 100
    """Symbols of the validation alphabet, and of the test alphabet."""

    def __post_init__(self) -> None:
        _rising(self, "lrs")
        _at_least_one(
            *(self, "epochs", "max_steps", "batch_size", "record_every"),
            *("n_validation", "n_test"),
        )


@dataclass(frozen=True)
class Copying:
    """One layer of attention that is to name the symbol it reads."""

    d_model: tuple[int, ...] = (32, 256)
    """Widths."""
    n: tuple[int, ...] = (32, 128)
    """Training strings; the paper's Figure 5."""
    steps: int = 250
    batch_size: int = 128
    lrs: tuple[float, ...] = (3e-3,)
    n_heads: int = 4
    d_head: int = 64
    """At least; all heads together must reach rank d_model, or copying fails for
    another reason."""
    record_every: int = 25

    def __post_init__(self) -> None:
        _rising(self, "d_model", "n", "lrs")
        _at_least_one(self, "steps", "batch_size", "n_heads", "d_head", "record_every")

    @property
    def compared_n(self) -> int:
        """The n nearest to 128, where models are opened."""
        return nearest(self.n, 128)


@dataclass(frozen=True)
class Recall:
    """The symbolic-label task of Figure 2; used where `n` is not empty."""

    task: str = "recall"
    n: tuple[int, ...] = ()
    d_model: int | None = None
    """Width of the models that recall; None for that of the real-label tasks."""
    depth: int | None = None
    """Their layers; None for those of the real-label tasks."""
    steps: int = 500
    record_every: int = 25

    def __post_init__(self) -> None:
        _rising(self, "n", empty=True)
        _at_least_one(self, "d_model", "depth", "steps", "record_every")
        given = task(self.task)
        symbolic = given.kind == "symbolic"
        require(symbolic, f"recall.task '{given.name}': its labels must be symbols")
        told = zip(given.templates, given.labels, strict=True)
        shown = all(label in template.symbols for template, label in told)
        require(shown, f"recall.task '{given.name}': every label in its template")


@dataclass(frozen=True)
class Kernel:
    """The kernel of infinitely wide transformers, and the heads it is checked by."""

    tasks: tuple[str, ...] = ("same_different", "majority-4")
    """Real-label tasks without regular tokens whose kernel matrix N is computed; the
    first is also solved by kernel regression."""
    n: tuple[int, ...] = (64, 256, 1024)
    """Training strings of kernel regression."""
    n_test: int = 400
    """Its test strings."""
    ridge: float = 1e-3
    """Its regularisation."""
    beta: float = 4.0
    """Inverse temperature of the softmax [beta]."""
    gamma: float = 1.0
    """Strength of the position embeddings [gamma]."""
    frequency: float = 1.0
    """Of the cosine above the attention [b_1]."""
    shift: float = 0.3
    """Of that cosine [b_2]."""
    bank_d: tuple[int, ...] = (32, 128, 512)
    """Widths of the random heads that the formula is the limit of."""
    bank_beta: float = 2.0
    """Their inverse temperature; entries of the kernel are then 0.8 to 1.5."""
    bank_heads: int = 1500
    n_banks: int = 8
    """A single bank depends on its few embeddings: the mean over these is taken."""

    def __post_init__(self) -> None:
        require(bool(self.tasks), "kernel.tasks is empty")
        twice = len(set(self.tasks)) < len(self.tasks)
        require(not twice, f"kernel.tasks={self.tasks}: one twice")
        for name in self.tasks:
            found = task(name)
            wild = found.kind == "real" and not found.regular
            require(wild, f"kernel task '{name}': numbers for wildcards only")
            size, length = len(found.templates), found.length
            require(size <= 8, f"kernel task '{name}': {size} templates, at most 8")
            require(length <= 14, f"kernel task '{name}': length {length}, at most 14")
        _rising(self, "n", "bank_d")
        _at_least_one(self, "n_test", "bank_heads", "n_banks")
        require(self.n[0] >= 2, f"n={self.n}: at least 2")
        require(len(self.bank_d) >= 2, f"bank_d={self.bank_d}: at least two widths")


@dataclass(frozen=True)
class FirstStep:
    """The copy task whose first instant of training is computed."""

    d_model: tuple[int, ...] = (16, 64, 256, 1024)
    """Widths."""
    n_tokens: int = 40
    n_seen: int = 20
    """Tokens that are trained on."""
    n_heads: int = 4
    gamma: float = 0.5
    """Strength of the position embedding [gamma]."""

    def __post_init__(self) -> None:
        _rising(self, "d_model")
        given = self.d_model
        ends = given[0] <= 32 and given[-1] >= 256
        require(ends, f"d_model={given}: from at most 32 to at least 256")
        fits = 0 < self.n_seen < self.n_tokens
        require(fits, f"n_seen={self.n_seen}: choose 1 to {self.n_tokens - 1}")


@dataclass(frozen=True)
class Config:
    """One setting of the study; vanilla and +aI models are always both trained."""

    task: str = "aba_abb"
    """A real-label task: a name, or rules such as `aab -> 1 | aba -> -1`."""
    n: tuple[int, ...] = (64, 256, 1024)
    """Training strings [n], and as many training symbols."""
    small_n: tuple[int, ...] = (16,)
    """Fewer strings, at which +aI alone is trained besides: it needs less."""
    mlp_n: tuple[int, ...] = ()
    """Training strings of the MLPs; empty for those of n."""
    other_tasks: tuple[str, ...] = ()
    """Further real-label tasks, each at the n nearest to 512."""
    variants: tuple[Variant, ...] = ("rotated",)
    multiplier: float = 10.0
    """Factor on the trained scalars a and b; it decides how fast they can grow."""
    level: float = 0.5
    """The MSE at which data needs are compared."""
    inserted: tuple[float, ...] = (2.0, 8.0, 32.0)
    """Sizes of m a |x|^2 that are tried, with both signs, in a model trained without
    a."""
    twins: bool = False
    """Train every network once more, on permuted answers: the null `shuffled`."""
    model: Shape = field(default_factory=Shape)
    training: Training = field(default_factory=Training)
    copying: Copying = field(default_factory=Copying)
    recall: Recall = field(default_factory=Recall)
    kernel: Kernel = field(default_factory=Kernel)
    first_step: FirstStep = field(default_factory=FirstStep)

    def __post_init__(self) -> None:
        self._check_tasks()
        _rising(self, "n")
        _rising(self, "small_n", "mlp_n", empty=True)
        require(bool(self.inserted), "inserted is empty")
        require(self.multiplier > 0, f"multiplier={self.multiplier}: must be positive")
        narrow = self.model.d_head <= self.model.d_model
        require(
            "mimetic" not in self.variants or narrow,
            f"d_head={self.model.d_head}: at most d_model for mimetic",
        )

    def _check_tasks(self) -> None:
        given = (self.task, *self.other_tasks)
        require(len(set(given)) == len(given), f"tasks {given}: one twice")
        for name in given:
            kind = task(name).kind
            require(kind == "real", f"task '{name}': its labels must be numbers")
        held_out = self.training.held_out_symbols
        for name in (*given, self.recall.task):
            need = task(name).n_wildcards
            require(
                held_out >= need,
                f"held_out_symbols={held_out}: task {name} needs {need}",
            )

    @property
    def compared_n(self) -> int:
        """The n nearest to 256, where models are compared and opened."""
        return nearest(self.n, 256)

    @property
    def identity_n(self) -> tuple[int, ...]:
        """Where +aI is trained; like the paper's, its curve ends at about 256."""
        few = (n for n in self.n if n <= self.compared_n)
        return tuple(sorted({*self.small_n, *few}))

    @property
    def perceptron_n(self) -> tuple[int, ...]:
        """Where MLPs are trained."""
        return self.mlp_n or self.n

    @property
    def other_n(self) -> int:
        """The n nearest to 512, where other tasks are run."""
        return nearest(self.n, 512)

    @property
    def recall_shape(self) -> tuple[int, int]:
        """Width and layers of the models that recall."""
        own = self.recall
        return own.d_model or self.model.d_model, own.depth or self.model.depth


def nearest(sizes: Sequence[int], wanted: int) -> int:
    """The size nearest to the wanted one, by ratio.

    >>> nearest((16, 64, 1024), 200)
    64
    """
    return min(sizes, key=lambda n: abs(log(n / wanted)))


def _rising(group: Any, *names: str, empty: bool = False) -> None:
    """Some tuples hold positive numbers that rise."""
    for name in names:
        given = getattr(group, name)
        require(empty or bool(given), f"{name} is empty")
        require(all(x > 0 for x in given), f"{name}={given}: must be positive")
        rising = all(a < b for a, b in pairwise(given))
        require(rising, f"{name}={given}: must rise")


def _at_least_one(group: Any, *names: str) -> None:
    for name in names:
        count = getattr(group, name)
        require(count is None or count >= 1, f"{name}={count}: at least 1")


QUICK = Config()

PAPER = Config(
    n=(16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    other_tasks=("same_different", "majority-4", "figure1"),
    variants=("rotated", "depth1", "both", "mimetic", "recurrent", "last_layer"),
    model=Shape(d_model=128, n_heads=16, d_head=64),
    training=Training(
        lrs=(3e-4, 1e-3, 3e-3),
        epochs=1000,
        max_steps=8000,
        batch_size=1024,
        n_test=400,
    ),
    copying=Copying(
        d_model=(64, 128, 256, 512, 1024, 2048, 4096),
        n=(16, 32, 64, 128, 256, 512, 1024, 2048),
        steps=1000,
    ),
    recall=Recall(
        n=(1024, 4096, 8192, 65536, 262144), d_model=512, depth=4, steps=8000
    ),
    first_step=FirstStep(d_model=(16, 64, 256, 1024, 2048)),
)

ZOO = Config(
    mlp_n=(64, 128),
    variants=(),
    twins=True,
    model=Shape(d_model=32, n_heads=4, d_head=8, mlp_ratio=1, perceptron=10),
    training=Training(lrs=(3e-3,), epochs=500, max_steps=500, held_out_symbols=14),
    copying=Copying(d_model=(8, 24), n=(16,), n_heads=2, d_head=4),
    first_step=FirstStep(d_model=(16, 256)),
)
"""Small enough to ship, with the twins that `calibrate` needs."""

PRESETS = {
    "quick": Preset(QUICK, n_seeds=3, cost="about a minute and a half"),
    "paper": Preset(PAPER, n_seeds=5, cost="days; for a GPU, untested there"),
    "zoo": Preset(ZOO, n_seeds=3, cost="under a minute; the shipped run"),
}
