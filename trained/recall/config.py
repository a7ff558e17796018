"""The sizes of the recall study. Symbols in brackets are the paper's."""

from dataclasses import dataclass, field, replace
from itertools import product
from math import factorial

from trained.config import Preset, require
from trained.errors import unknown

from .theory_config import (
    Few,
    FirstStep,
    Rate,
    Warmup,
    check_distinct,
    check_least,
    check_temperatures,
)

MOST_SUBJECTS = 64
"""The affine table has n(n-1) relations and the memory 3 n^2 neurons."""

SAMPLE_MODES = ("adam", "gd")

READINGS = ("caption", "warm", "decay")


@dataclass(frozen=True)
class Partial:
    """Adam on the position scores alone, a fixed number of prompts (Figure 3)."""

    steps: int = 8000
    """With 4000 what is left outside the pairs still costs .04 nats (seed 100)."""
    sizes: tuple[int, ...] = (1, 8)
    """Numbers of prompts [N]."""
    subjects: tuple[int, ...] = (8,)
    """Sizes of the random tables; none leaves it out."""
    quarter: int = 16
    """Size of the affine table of which a quarter is used; 0 leaves it out."""
    draws: int = 10
    """Table, prompts and perturbation of each cell, from the first seed."""
    population: int = 500
    """Prompts, other than those of the test, that the best attention is found on."""

    def __post_init__(self) -> None:
        check_least("partial", self, steps=1, draws=1, population=100, quarter=0)
        require(
            bool(self.sizes) and all(size >= 1 for size in self.sizes),
            f"partial.sizes={self.sizes}: give numbers of at least 1",
        )
        check_distinct("partial.sizes", self.sizes)
        check_distinct("partial.subjects", self.subjects)


@dataclass(frozen=True)
class Samples:
    """A fixed number of prompts for the whole key-query matrix (Figure 3)."""

    subjects: tuple[int, ...] = (8,)
    """Sizes of the random tables; none leaves the figure out."""
    sizes: tuple[int, ...] = (1, 8, 64)
    """Numbers of prompts [N]."""
    beyond: tuple[int, ...] = ()
    """Further numbers of prompts, in the first reading: ours."""
    temperatures: tuple[float, ...] = (0.05, 0.01)
    """Temperatures of the fine-tuning [T]."""
    spreads: tuple[float, ...] = (0.02, 0.0)
    """Standard deviations of the initial matrix; with the temperatures they make the
    readings, as the text gives neither."""
    modes: tuple[str, ...] = ("adam",)
    """Optimisers: adam is the paper's, gd is ours (first table and reading only)."""
    steps: int = 600
    """Steps of the optimiser, each on all prompts."""
    gd_rate: float = 40.0
    """The learning rate of gd is this times T^2."""

    def __post_init__(self) -> None:
        for mode in self.modes:
            if mode not in SAMPLE_MODES:
                raise unknown("sample mode", mode, SAMPLE_MODES)
        require(
            bool(self.sizes) and all(size >= 1 for size in self.sizes),
            f"samples.sizes={self.sizes}: give numbers of at least 1",
        )
        for name in ("subjects", "sizes", "modes", "temperatures", "spreads"):
            check_distinct(f"samples.{name}", getattr(self, name))
        check_temperatures("samples.temperatures", self.temperatures)
        readings = bool(self.temperatures) and bool(self.spreads)
        require(readings, "samples.temperatures and samples.spreads: give one each")
        check_least("samples", self, steps=1)

    @property
    def few(self) -> int:
        """The number of prompts that should suffice: the paper's 8 where it is run."""
        return 8 if 8 in self.sizes else max(self.sizes)

    @property
    def readings(self) -> tuple[tuple[float, float], ...]:
        """(T, initial spread), none of which the text gives."""
        return tuple(product(self.temperatures, self.spreads))


@dataclass(frozen=True)
class Triple:
    """Three examples (Figure 2b)."""

    steps: int = 0
    """Adam steps; 0 leaves it out."""
    relations: int = 512
    """Rows of its random table, and of Figure 4(b)'s [m]."""
    temperature: float = 0.01
    """Of its fine-tuning, and of Figure 4(b)'s [T]."""
    hot: float = 0.03
    """The null's."""
    max_seeds: int = 3
    """Most seeds that it is trained with."""

    def __post_init__(self) -> None:
        check_temperatures("triple.temperature", (self.temperature,))
        check_temperatures("triple.hot", (self.hot,))
        check_least("triple", self, steps=0, relations=2, max_seeds=1)


@dataclass(frozen=True)
class Pretrained:
    """The memory is learned from facts, then the key-query matrix (Figure 4)."""

    steps: int = 1500
    """Batches of facts; 0 leaves Figure 4(a) out."""
    fine_steps: int = 600
    """Batches of prompts after them."""
    triple_steps: int = 0
    """Batches of each kind with three examples (Figure 4b); 0 leaves it out."""
    readings: tuple[str, ...] = ("caption",)
    """caption: the figure's temperature in both phases; warm: `warm` in the first;
    decay: the same with AdamW, which is ours."""
    warm: float = 1.0
    """Temperature of the first phase in the readings warm and decay."""
    batch: int = 512
    """Facts in a step."""
    widths: tuple[int, ...] = (3,)
    """Neurons, times n^2: 3 as the constructed memory has, and 12."""
    spread: float = 0.05
    """Standard deviation of the memory's initial weights."""
    weight_decay: float = 0.1
    """Of the reading decay."""
    n_facts: int = 2000
    """Facts that the memory is tested on."""
    max_seeds: int = 3
    """Most seeds that it is trained with."""

    def __post_init__(self) -> None:
        check_temperatures("pretrained.warm", (self.warm,))
        for name in self.readings:
            if name not in READINGS:
                raise unknown("reading of Figure 4", name, READINGS)
        for name in ("readings", "widths"):
            check_distinct(f"pretrained.{name}", getattr(self, name))
        require(bool(self.widths), "pretrained.widths is empty")
        check_least("pretrained", self, steps=0, fine_steps=1, triple_steps=0, batch=1)
        check_least("pretrained", self, n_facts=100, max_seeds=1)


@dataclass(frozen=True)
class Config:
    """One row of the study."""

    n_subjects: int = 8
    """Subjects, and as many answers [n]; a prime power, for the affine table."""
    n_relations: int = 64
    """Rows of the random table [m]; the affine table always has n(n-1)."""
    n_examples: int = 2
    """In-context examples [k]."""
    temperature: float = 0.05
    """Of the fine-tuning with Adam [T]."""
    hot: float = 0.12
    """The temperature of a null: the best attention drops a pair."""
    learning_rate: float = 1e-3
    """Of Adam."""
    spread: float = 0.02
    """Standard deviation of the initial key-query matrix."""
    full_steps: int = 600
    """Adam steps on the whole key-query matrix."""
    full_batch: int = 128
    """Fresh prompts in each of them."""
    full_seeds: int = 3
    """Most seeds that these are trained with."""
    null_seeds: int = 1
    """Most seeds of the arms that are only nulls."""
    direct_steps: int = 300
    """Adam steps with three subjects, without a written relation and with it."""
    n_test: int = 1000
    """Unseen prompts for accuracies."""
    n_probe: int = 500
    """Prompts for the linear probes; too few leave them out."""
    probe_seeds: int = 3
    """Seeds whose models are probed; a probe takes longer than all else."""
    twins: bool = False
    """Train more nulls: the warm-up and `full-affine` on permuted answers too."""
    warmup: Warmup = field(default_factory=Warmup)
    few: Few = field(default_factory=Few)
    first_step: FirstStep = field(default_factory=FirstStep)
    rate: Rate = field(default_factory=Rate)
    partial: Partial = field(default_factory=Partial)
    samples: Samples = field(default_factory=Samples)
    triple: Triple = field(default_factory=Triple)
    pretrained: Pretrained = field(default_factory=Pretrained)

    def __post_init__(self) -> None:
        n, m, k = self.n_subjects, self.n_relations, self.n_examples
        require(
            3 <= n <= MOST_SUBJECTS and is_prime_power(n),
            f"{n} subjects: the affine table needs a prime power from 3 to"
            f" {MOST_SUBJECTS}",
        )
        require(2 <= k <= 4, f"n_examples={k}: choose 2, 3 or 4")
        require(k < n, f"n_examples={k} needs more than {k} subjects, not {n}")
        check_temperatures("temperature", (self.temperature,))
        check_temperatures("hot", (self.hot,))
        _check_relations("n_relations", n, m)
        for name in ("samples", "partial"):
            for size in getattr(self, name).subjects:
                require(size > k, f"{name}.subjects={size}: give more than {k}")
                _check_relations("n_relations", size, m)
        self._check_affine()
        if self.triple.steps + self.pretrained.triple_steps:
            require(n > 3, f"three examples need more than three subjects, not {n}")
            _check_relations("triple.relations", n, self.triple.relations)
        for name in ("full_steps", "full_seeds", "null_seeds", "direct_steps"):
            count = getattr(self, name)
            require(count >= 1, f"{name}={count}: at least 1")
        for name in ("n_test", "n_probe"):
            count = getattr(self, name)
            require(count >= 100, f"{name}={count}: at least 100")

    def _check_affine(self) -> None:
        sizes = {
            "few.subjects": self.few.subjects,
            "first_step.subjects": (self.first_step.subjects,),
            "rate.subjects": (self.rate.subjects,),
            "partial.quarter": (self.partial.quarter or 3,),
        }
        for name, several in sizes.items():
            for size in several:
                fits = 3 <= size <= MOST_SUBJECTS and is_prime_power(size)
                require(fits, f"{name}={size}: a prime power from 3 on")

    @property
    def has_probes(self) -> bool:
        """Whether the linear probes have enough prompts per relation, and chance."""
        n = self.n_subjects
        return n - self.n_examples >= 3 and 10 * n * (n - 1) <= self.n_probe


def _check_relations(name: str, n_subjects: int, n_relations: int) -> None:
    most = factorial(min(n_subjects, 12))
    require(
        2 <= n_relations <= most,
        f"{name}={n_relations}: {n_subjects} subjects allow 2 to {most}",
    )


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


def memory_arm(reading: str, width: int) -> str:
    """The name of an arm of Figure 4(a)."""
    return f"fig4a-{reading}-{width}"


QUICK = Config()

PAPER = Config(
    full_steps=2500,
    full_batch=256,
    direct_steps=2000,
    n_test=2000,
    n_probe=4000,
    warmup=Warmup(
        temperatures=(0.05, 0.03, 0.02), steps=200_000, escape_steps=20_000, starts=100
    ),
    few=Few(
        temperatures=(0.002, 0.001),
        subjects=(8, 16, 32),
        sizes=(1, 2, 4, 8, 16, 32, 64),
    ),
    partial=Partial(steps=16_000, subjects=(8, 16, 32), sizes=(1, 2, 4, 8, 16, 64)),
    samples=Samples(
        subjects=(8, 16, 32),
        sizes=(1, 2, 4, 8, 16, 64),
        beyond=(512,),
        modes=("adam", "gd"),
        steps=4000,
    ),
    triple=Triple(steps=2500),
    pretrained=Pretrained(
        fine_steps=1500,
        triple_steps=1500,
        readings=("caption", "warm", "decay"),
        widths=(3, 12),
    ),
)

ZOO = replace(
    QUICK,
    warmup=Warmup(steps=2000),
    few=Few(draws=5, reach=4.0, n_test=300, n_decode=50),
    first_step=FirstStep(prompts=2048),
    rate=Rate(draws=4, temperatures=(0.008, 0.004)),
    partial=Partial(steps=1000, draws=4),
    samples=Samples(steps=200),
    pretrained=Pretrained(steps=500, fine_steps=300, batch=256, max_seeds=1),
    twins=True,
)

PRESETS = {
    "quick": Preset(QUICK, n_seeds=5, cost="about two minutes"),
    "paper": Preset(PAPER, n_seeds=10, cost="about an hour"),
    "zoo": Preset(ZOO, n_seeds=3, cost="half a minute; the shipped run"),
}
