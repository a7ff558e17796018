"""The sizes of what is computed without training. In brackets: the paper's symbols."""

from dataclasses import dataclass
from math import isfinite

from trained.config import require

from .checks import at_least_one, ranges, rising
from .tasks import task


@dataclass(frozen=True)
class Kernel:
    """The kernel of infinitely wide transformers, and the heads it is checked by."""

    tasks: tuple[str, ...] = ("same_different", "aba_abb")
    """Real-label tasks without regular tokens that kernel regression solves."""
    matrix_tasks: tuple[str, ...] = (
        *("same_different", "aba_abb", "majority-4"),
        *("random-5-5-2-0", "random-5-5-2-1", "random-5-5-2-2"),
    )
    """Real-label tasks whose matrix N is computed; random templates are redrawn."""
    draws: int = 2
    """Replicates of each seed: parameters, templates, strings, integration points."""
    betas: tuple[float, ...] = (0.5, 6.0)
    """Range of the inverse temperature [beta] where it is drawn."""
    gammas: tuple[float, ...] = (0.3, 2.0)
    """Range of the strength of positions [gamma] where it is drawn."""
    frequencies: tuple[float, ...] = (0.3, 2.0)
    """Range of the cosine's frequency [b_1] where it is drawn."""
    shifts: tuple[float, ...] = (0.0, 1.5)
    """Range of its shift [b_2] where it is drawn."""
    refinements: int = 2
    """How often an unresolved eigenvalue gets four times the integration points."""
    n: tuple[int, ...] = (64, 256, 1024)
    """Training strings of kernel regression."""
    n_test: int = 200
    """Its test strings."""
    ridge: float = 1e-3
    """Its regularisation."""
    few_symbols: int = 8
    """The small training alphabet."""
    noise: float = 1.0
    """Standard deviation of the noise on training labels, where there is some."""
    beta: float = 4.0
    """Inverse temperature of the softmax in regression [beta]."""
    gamma: float = 1.0
    """Strength of the position embeddings there [gamma]."""
    frequency: float = 1.0
    """Of the cosine above the attention there [b_1]."""
    shift: float = 0.3
    """Of that cosine [b_2]."""
    bank_d: tuple[int, ...] = (32, 128, 512)
    """Widths of the random heads that the formula is the limit of."""
    bank_beta: float = 2.0
    """Their inverse temperature; entries of the kernel are then 0.8 to 1.5."""
    bank_heads: int = 1500
    """Random heads in a bank."""
    n_banks: int = 8
    """A single bank depends on its few embeddings: the mean over these is taken."""

    def __post_init__(self) -> None:
        for names in ("tasks", "matrix_tasks"):
            given = getattr(self, names)
            require(bool(given), f"kernel.{names} is empty")
            twice = len(set(given)) < len(given)
            require(not twice, f"kernel.{names}={given}: one twice")
            for name in given:
                found = task(name)
                require(found.kind == "real", f"kernel task '{name}': numbers only")
                short = found.length <= 14
                require(short, f"kernel task '{name}': length {found.length} > 14")
        for name in self.tasks:
            wild = not task(name).regular
            require(wild, f"kernel task '{name}': wildcards only")
        rising(self, "n", "bank_d")
        ranges(self, "betas", "gammas", "frequencies", "shifts")
        at_least_one(self, "n_test", "bank_heads", "n_banks", "draws")
        require(self.n[0] >= 2, f"n={self.n}: at least 2")
        require(len(self.bank_d) >= 2, f"bank_d={self.bank_d}: at least two widths")


@dataclass(frozen=True)
class FirstStep:
    """The copy task whose first instant of training is computed."""

    d_model: tuple[int, ...] = (16, 64, 128, 256, 512, 1024)
    """Widths; the limit is fitted to those from 64 on."""
    n_tokens: int = 40
    """Tokens of the vocabulary."""
    n_seen: int = 20
    """Tokens that are trained on."""
    n_heads: int = 4
    """Attention heads."""
    gammas: tuple[float, ...] = (0.0, 0.5, 1.0)
    """Strengths of the position embedding [gamma]."""
    draws: int = 2
    """Replicates of each seed."""

    def __post_init__(self) -> None:
        rising(self, "d_model")
        given = self.d_model
        ends = given[0] <= 32 and len([d for d in given if d >= 64]) >= 4
        require(ends, f"d_model={given}: one of at most 32, four of at least 64")
        fits = 0 < self.n_seen < self.n_tokens
        require(fits, f"n_seen={self.n_seen}: choose 1 to {self.n_tokens - 1}")
        sound = self.gammas and all(isfinite(g) and g >= 0 for g in self.gammas)
        require(bool(sound), f"gammas={self.gammas}: at least 0, and one of them")
        at_least_one(self, "draws", "n_heads")
