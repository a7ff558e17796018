"""The sizes of the recall study. Symbols in brackets are the paper's."""

from dataclasses import dataclass
from math import factorial

from trained.config import Preset, require
from trained.errors import unknown

MOST_SUBJECTS = 64
"""The affine table has n(n-1) relations and the memory 3 n^2 neurons."""

SAMPLE_MODES = ("partial", "full-gd", "full-adam")


@dataclass(frozen=True)
class Config:
    """One row of the study; the two relation tables are always both run."""

    n_subjects: int = 8
    """Subjects, and as many answers [n]; a prime power, for the affine table."""
    n_relations: int = 64
    """Rows of the random table [m]; the affine table always has n(n-1)."""
    n_examples: int = 2
    """In-context examples [k]."""
    temperature: float = 0.05
    """Of the fine-tuning with Adam [T]."""
    warmup_temperatures: tuple[float, ...] = (0.05, 0.03)
    """Of the three-subject model of Theorem 2."""
    low_temperatures: tuple[float, ...] = (0.004,)
    """Of Algorithm 1 at general n (Theorems 1 and 3)."""
    theorem_subjects: tuple[int, ...] = (8,)
    """Values of n for Theorems 1 and 3, each with its affine table."""
    sample_sizes: tuple[int, ...] = (1, 8)
    """Numbers of fine-tuning prompts in Figure 3 [N]."""
    sample_tables: tuple[str, ...] = ("affine",)
    """Tables of Figure 3: `affine` (with n_subjects) or a size n of a random one."""
    sample_modes: tuple[str, ...] = ("partial", "full-gd")
    """Ways to fine-tune in Figure 3: partial, full-gd, full-adam."""
    full_steps: int = 800
    """Adam steps on the whole key-query matrix."""
    triple_steps: int = 0
    """Adam steps for three examples, Figure 2b; 0 leaves it out."""
    pretrained_steps: int = 0
    """Steps that pretrain the memory of Figure 4; 0 leaves the figure out."""
    n_test: int = 2000
    """Unseen prompts for accuracies."""

    def __post_init__(self) -> None:
        for n in (self.n_subjects, *self.theorem_subjects):
            require(
                3 <= n <= MOST_SUBJECTS and is_prime_power(n),
                f"{n} subjects: the affine table needs a prime power from 3 to"
                f" {MOST_SUBJECTS}",
            )
        n, m, k = self.n_subjects, self.n_relations, self.n_examples
        require(2 <= k <= 4, f"n_examples={k}: choose 2, 3 or 4")
        require(k < n, f"n_examples={k} needs more than {k} subjects, not {n}")
        most = factorial(min(n, 12))
        require(2 <= m <= most, f"n_relations={m}: {n} subjects allow 2 to {most}")
        temperatures = (
            self.temperature,
            *self.warmup_temperatures,
            *self.low_temperatures,
        )
        for t in temperatures:
            require(0 < t <= 10, f"temperature {t} is outside (0, 10]")
        for name in self.sample_tables:
            require(
                name == "affine" or (name.isdecimal() and int(name) > k),
                f"sample_tables={name}: give affine or a number of subjects above {k}",
            )
            enough = name == "affine" or factorial(min(int(name), 12)) >= m
            require(enough, f"sample_tables={name}: fewer than {m} bijections")
        for mode in self.sample_modes:
            if mode not in SAMPLE_MODES:
                raise unknown("sample mode", mode, SAMPLE_MODES)
        room = 0 if self.triple_steps + self.pretrained_steps == 0 else 512
        require(
            room <= most, f"{n} subjects allow {most} relations; three examples use 512"
        )
        self._check_tuples()
        self._check_counts()

    def _check_tuples(self) -> None:
        for name in ("warmup_temperatures", "low_temperatures", "theorem_subjects"):
            require(bool(getattr(self, name)), f"{name} is empty")
        for name in (
            *("warmup_temperatures", "low_temperatures", "theorem_subjects"),
            *("sample_sizes", "sample_tables", "sample_modes"),
        ):
            given = getattr(self, name)
            require(len(set(given)) == len(given), f"{name}={given}: one value twice")
        for t in self.low_temperatures:
            require(t < 1, f"low_temperatures={t}: Algorithm 1 needs less than 1")
        for n in self.theorem_subjects:
            require(n > 3, f"theorem_subjects={n}: three subjects are the warm-up")

    @property
    def has_probes(self) -> bool:
        """Whether the linear probes have enough prompts per relation, and chance."""
        n = self.n_subjects
        return n - self.n_examples >= 3 and n * (n - 1) <= 400

    @property
    def few_prompts(self) -> int:
        """The number of prompts that should suffice: the paper's 8 where it is run."""
        return 8 if 8 in self.sample_sizes else max(self.sample_sizes)

    def _check_counts(self) -> None:
        require(
            bool(self.sample_sizes) and all(size >= 1 for size in self.sample_sizes),
            f"sample_sizes={self.sample_sizes}: give numbers of at least 1",
        )
        require(self.full_steps >= 1, f"full_steps={self.full_steps}: at least 1")
        require(self.n_test >= 100, f"n_test={self.n_test}: at least 100")
        for name in ("triple_steps", "pretrained_steps"):
            steps = getattr(self, name)
            require(steps >= 0, f"{name}={steps}: 0 or more")


def is_prime_power(number: int) -> bool:
    """Whether a finite field with that many elements exists.

    >>> [n for n in range(2, 17) if is_prime_power(n)]
    [2, 3, 4, 5, 7, 8, 9, 11, 13, 16]
    """
    return number >= 2 and prime_base(number) > 0


def prime_base(number: int) -> int:
    """The prime whose power the number is, or 0."""
    prime = next(p for p in range(2, number + 1) if number % p == 0)
    while number % prime == 0:
        number //= prime
    return prime if number == 1 else 0


QUICK = Config()

PAPER = Config(
    low_temperatures=(0.004, 0.002),
    theorem_subjects=(5, 8, 9, 16),
    sample_sizes=(1, 2, 4, 8, 16, 64),
    sample_tables=("affine", "8", "16", "32"),
    sample_modes=("partial", "full-gd", "full-adam"),
    full_steps=2500,
    triple_steps=2500,
    pretrained_steps=1500,
)

PRESETS = {
    "quick": Preset(QUICK, n_seeds=5, cost="80 seconds"),
    "paper": Preset(PAPER, n_seeds=10, cost="about half an hour"),
    "zoo": Preset(QUICK, n_seeds=1, cost="half a minute; the shipped run"),
}
