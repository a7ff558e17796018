"""The sizes of the symbols study. Symbols in brackets are the paper's."""

from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from trained.config import require

from .checks import at_least_one, nearest, positive, rising, sized
from .tasks import task
from .theory_config import FirstStep, Kernel

Variant = Literal["depth1", "networks"]
"""Beside what every run trains: one layer; an RNN, an LSTM and W_K W_Q^T started near
the identity."""
Twins = Literal["nulls", "all"]
Scaled = Literal["weights", "scores"]
"""What a factor scales: all weights of the blocks, or the attention's scores."""

PAPER_SHAPE = (128, 2, 16, 64, 2)
"""Width, layers, heads, their width and the MLPs' over d of the paper's transformer."""


@dataclass(frozen=True)
class Shape:
    """The networks on real-label tasks."""

    d_model: int = 64
    """Width of the transformers [d]."""
    depth: int = 2
    """Their layers."""
    n_heads: int = 4
    """Attention heads of a layer."""
    d_head: int = 16
    """Width of a head."""
    mlp_ratio: int = 2
    """Width of all transformers' MLPs over d_model."""
    perceptron: int = 128
    """Width of the networks that are only an MLP."""
    mimetic_weight: float = 0.7
    """Of the identity, and of the noise, where W_K W_Q^T starts near the identity."""

    def __post_init__(self) -> None:
        at_least_one(
            self, "d_model", "depth", "n_heads", "d_head", "mlp_ratio", "perceptron"
        )

    @property
    def is_papers(self) -> bool:
        """Whether it is the transformer of the paper's Figures 1 and 21."""
        own = (self.d_model, self.depth, self.n_heads, self.d_head, self.mlp_ratio)
        return own == PAPER_SHAPE


@dataclass(frozen=True)
class Training:
    """How the real-label tasks are trained, and by which strings they are scored."""

    lrs: tuple[float, ...] = (3e-3,)
    """Adam's learning rates; each model takes the best on validation."""
    epochs: int = 300
    """Passes over the training strings, at most."""
    max_steps: int = 300
    """Training ends after the epochs or these steps, whichever comes first."""
    batch_size: int = 128
    """Strings of a step, at most."""
    stop_below: float = 5e-4
    """A seed stops once its training error is below this."""
    mlp_lr: float = 3e-3
    """Adam's learning rate for MLPs."""
    mlp_sgd_lr: float = 0.1
    """That of plain gradient descent."""
    mlp_steps: int = 600
    """Of MLPs by Adam, which must fit, or nothing can be said of them."""
    mlp_sgd_steps: int = 2000
    """Of MLPs by plain gradient descent."""
    mlp_stop_below: float = 1e-4
    """Lower for MLPs: a batch is not all strings."""
    record_every: int = 10
    """Steps between scores, or a hundredth of all if that is more; of MLPs a fifth."""
    n_validation: int = 100
    """Strings of the validation split."""
    n_test: int = 200
    """Strings of the test split."""
    held_out_symbols: int = 100
    """Symbols of the validation alphabet, and of the test alphabet."""
    train_alphabet: int | None = None
    """Training symbols; None for as many as there are training strings, the paper's."""
    label_noise: float = 0.0
    """Standard deviation of Gaussian noise on the training labels [sigma]."""

    def __post_init__(self) -> None:
        rising(self, "lrs")
        positive(self, "mlp_lr", "mlp_sgd_lr")
        at_least_one(
            *(self, "epochs", "max_steps", "batch_size", "record_every"),
            *("n_validation", "n_test", "train_alphabet", "mlp_steps"),
            "mlp_sgd_steps",
        )
        noise = self.label_noise
        require(isfinite(noise) and noise >= 0, f"label_noise={noise}: at least 0")


@dataclass(frozen=True)
class LastLayer:
    """Training the readout only, above frozen random weights; used if n is given."""

    n: int | None = None
    """Training strings [n]; None leaves it out."""
    scales: tuple[float, ...] = (1.0, 8.0, 64.0)
    """Factors on what is frozen."""
    lr: float = 1e-2
    """Adam's learning rate."""
    epochs: int = 1000
    """Passes over the training strings."""

    def __post_init__(self) -> None:
        require(len(self.scales) == 3, f"scales={self.scales}: three")
        rising(self, "scales")
        positive(self, "lr")
        at_least_one(self, "n", "epochs")


@dataclass(frozen=True)
class Copying:
    """The transformer that is to name the symbol it reads, of several widths."""

    d_model: tuple[int, ...] = (64, 256)
    """Widths."""
    depth: int = 2
    """Layers."""
    n: tuple[int, ...] = (128,)
    """Training strings; the paper's Figure 5. Widths are compared at the n nearest to
    128, and there +bI is trained too."""
    span_n: int = 32
    """Training strings where the widest is opened: they must not span its width."""
    multiplier: float = 30.0
    """Factor on the trained scalars b here."""
    steps: int = 60
    """Adam steps."""
    batch_size: int = 1024
    """Strings of a step, at most."""
    lrs: tuple[float, ...] = (1e-3,)
    """Adam's learning rates; each model takes the best on validation."""
    n_heads: int = 4
    """Attention heads of a layer."""
    d_head: int = 64
    """At least; all heads together must reach rank d_model, or copying fails for
    another reason."""
    record_every: int = 10
    """Steps between scores, or a hundredth of all if that is more."""

    def __post_init__(self) -> None:
        rising(self, "d_model", "n", "lrs")
        positive(self, "multiplier")
        at_least_one(
            *(self, "depth", "steps", "batch_size", "n_heads", "d_head"),
            *("record_every", "span_n"),
        )

    @property
    def compared_n(self) -> int:
        """The n nearest to 128, where widths are compared."""
        return nearest(self.n, 128)


@dataclass(frozen=True)
class Recall:
    """The symbolic-label task of Figure 2; used where `n` is not empty."""

    task: str = "recall"
    """A symbolic-label task: a name, or rules such as `aba -> a | abb -> b`."""
    n: tuple[int, ...] = (4096,)
    """Training strings [n]; empty leaves it out."""
    d_model: int = 64
    """Width of the transformer [d]."""
    depth: int = 4
    """Layers of the transformer."""
    n_heads: int = 4
    """Attention heads of a layer."""
    d_head: int = 16
    """Width of a head."""
    multiplier: float = 10.0
    """Factor on the trained scalars a and b here."""
    lrs: tuple[float, ...] = (3e-3,)
    """Adam's learning rates; each model takes the best on validation."""
    batch_size: int = 128
    """Strings of a step, at most."""
    epochs: int = 1000
    """Passes over the training strings, at most."""
    max_steps: int = 200
    """Training ends after the epochs or these steps, whichever comes first."""
    record_every: int = 25
    """Steps between scores, or a hundredth of all if that is more."""

    def __post_init__(self) -> None:
        rising(self, "n", empty=True)
        rising(self, "lrs")
        positive(self, "multiplier")
        at_least_one(
            *(self, "d_model", "depth", "n_heads", "d_head", "batch_size"),
            *("epochs", "max_steps", "record_every"),
        )
        given = task(self.task)
        symbolic = given.kind == "symbolic"
        require(symbolic, f"recall.task '{given.name}': its labels must be symbols")
        told = zip(given.templates, given.labels, strict=True)
        shown = all(label in template.symbols for template, label in told)
        require(shown, f"recall.task '{given.name}': every label in its template")


@dataclass(frozen=True)
class Psychometric:
    """The three tests of Figure 3; used where `n` is not empty."""

    n: tuple[int, ...] = ()
    """Training strings: two sizes, the second at least eight times the first."""
    d_model: int = 64
    """Width of the transformers [d]."""
    depth: int = 2
    """Layers of the transformers."""
    n_heads: int = 4
    """Attention heads of a layer."""
    d_head: int = 16
    """Width of a head."""
    multiplier: float = 10.0
    """Factor on the trained scalars a and b here."""
    lrs: tuple[float, ...] = (1e-3,)
    """Adam's learning rates; each transformer takes the best on validation."""
    batch_size: int = 128
    """Strings of a step, at most."""
    steps: int = 1500
    """Adam steps."""
    n_test: int = 400
    """Strings of the test split."""
    record_every: int = 50
    """Steps between scores of transformers, or a hundredth of all if that is more."""

    def __post_init__(self) -> None:
        rising(self, "n", empty=True)
        rising(self, "lrs")
        positive(self, "multiplier")
        at_least_one(
            *(self, "d_model", "depth", "n_heads", "d_head", "batch_size"),
            *("steps", "n_test", "record_every"),
        )
        two = not self.n or (len(self.n) == 2 and self.n[1] >= 8 * self.n[0])
        require(two, f"n={self.n}: two sizes, the second 8 times the first or more")


@dataclass(frozen=True)
class Config:
    """One setting of the study; vanilla and +aI models are always both trained."""

    task: str = "aba_abb"
    """A real-label task: a name, or rules such as `aab -> 1 | aba -> -1`."""
    n: tuple[int, ...] = (64, 256, 1024)
    """Training strings [n]."""
    small_n: tuple[int, ...] = (16, 32)
    """Fewer strings, at which +aI alone is trained besides: it needs less."""
    mlp_tasks: tuple[str, ...] = ("aba_abb", "same_different")
    """Real-label tasks without regular tokens that MLPs are trained on."""
    mlp_n: tuple[int, ...] = (64, 256)
    """Training strings of the MLPs."""
    both_tasks: tuple[str, ...] = ()
    """Tasks on which vanilla and both scalars are compared, as `majority-4@512`."""
    plain_tasks: tuple[str, ...] = ()
    """Tasks on which vanilla alone is trained, as `random-2-5-2-2@512`."""
    variants: tuple[Variant, ...] = ()
    """Further networks: `depth1` has one layer; `networks` are an RNN, an LSTM and
    W_K W_Q^T started near the identity; empty: none."""
    multiplier: float = 10.0
    """Factor on the trained scalars a and b of real-label tasks; it decides how fast
    they can grow, and is not in the paper."""
    level: float = 0.5
    """The MSE at which data needs are compared."""
    inserted: tuple[float, ...] = (2.0, 8.0, 32.0)
    """Sizes of m a |x|^2 that are tried, with both signs, in a model trained without
    a."""
    twins: Twins = "nulls"
    """Which networks are trained once more, on permuted answers (the null `shuffled`):
    those that a claim names, or all that are no nulls themselves."""
    null_seeds: int | None = 1
    """Seeds of the networks that are nulls only; None for all."""
    model: Shape = field(default_factory=Shape)
    training: Training = field(default_factory=Training)
    last_layer: LastLayer = field(default_factory=LastLayer)
    copying: Copying = field(default_factory=Copying)
    recall: Recall = field(default_factory=Recall)
    psychometric: Psychometric = field(default_factory=Psychometric)
    kernel: Kernel = field(default_factory=Kernel)
    first_step: FirstStep = field(default_factory=FirstStep)

    def __post_init__(self) -> None:
        self._check_tasks()
        rising(self, "n", "mlp_n")
        rising(self, "small_n", empty=True)
        least = min(*self.n, *self.mlp_n, *self.small_n, *self.copying.n)
        require(least >= 2, f"n={least}: at least 2 strings")
        require(bool(self.inserted), "inserted is empty")
        positive(self, "multiplier", "level")
        at_least_one(self, "null_seeds")
        narrow = self.model.d_head <= self.model.d_model
        require(
            "networks" not in self.variants or narrow,
            f"d_head={self.model.d_head}: at most d_model for a mimetic start",
        )

    def _check_tasks(self) -> None:
        both = [sized(text)[0] for text in (*self.both_tasks, *self.plain_tasks)]
        for name in (self.task, *self.mlp_tasks, *both):
            kind = task(name).kind
            require(kind == "real", f"task '{name}': its labels must be numbers")
        for name in self.mlp_tasks:
            require(not task(name).regular, f"MLP task '{name}': wildcards only")
        held_out = self.training.held_out_symbols
        for name in (self.task, *self.mlp_tasks, *both, self.recall.task):
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
