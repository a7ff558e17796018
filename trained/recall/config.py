"""The sizes of the recall study. Symbols in brackets are the paper's."""

from dataclasses import dataclass, field, replace
from math import factorial

from trained.config import Preset, require
from trained.errors import unknown

MOST_SUBJECTS = 64
"""The affine table has n(n-1) relations and the memory 3 n^2 neurons."""

SAMPLE_MODES = ("partial", "full-gd", "full-adam")

THRESHOLD = 0.0875
"""The temperature above which, with three subjects, the best attention drops a pair."""


@dataclass(frozen=True)
class Warmup:
    """Algorithm 1 with three subjects and all six bijections (Theorem 2)."""

    temperatures: tuple[float, ...] = (0.05, 0.04, 0.03)
    hot: float = 0.12
    """The null's temperature, above `THRESHOLD`."""
    draws: int = 4
    """Perturbations of each seed at each temperature, drawn from (seed, index)."""
    steps: int = 20_000
    """Gradient steps of stage 1, to the saddle."""
    escape_steps: int = 2000
    """Gradient steps of stage 2, away from it."""
    stride: int = 10
    """Gradient steps between two records; the trainer takes them at once."""
    rate: float = 100.0
    """The learning rate is this times T^2."""
    points: int = 10_000
    """Random attentions for Lemma 8, for each seed."""

    def __post_init__(self) -> None:
        require(bool(self.temperatures), "warmup.temperatures is empty")
        _check_temperatures("warmup.temperatures", self.temperatures)
        require(
            max(*self.temperatures, THRESHOLD) < self.hot <= 10,
            f"warmup.hot={self.hot}: above {THRESHOLD} and all warmup.temperatures",
        )
        _check_least("warmup", self, draws=1, steps=1, stride=1, points=1)
        for name in ("steps", "escape_steps"):
            count = getattr(self, name)
            require(
                count > 0 and count % self.stride == 0,
                f"warmup.{name}={count}: a multiple of warmup.stride={self.stride}",
            )

    @property
    def saddle(self) -> int:
        """The trainer's step at which stage 1 ends."""
        return self.steps // self.stride

    @property
    def path(self) -> tuple[int, ...]:
        """The trainer's steps in stage 2 whose weights are kept, ever further apart."""
        last = self.escape_steps // self.stride
        gaps = [2**i for i in range(last.bit_length()) if 2**i < last]
        return tuple(self.saddle + gap for gap in gaps)


@dataclass(frozen=True)
class Few:
    """Stage 1 of Algorithm 1 on part of an affine table (Lemma 9)."""

    temperature: float = 0.004
    share: float = 0.5
    """Of the affine table's rows; fewer leave prompts without a confusing relation."""
    prompts: int = 8
    """Fine-tuning prompts [N]."""
    rate: float = 100.0
    """The learning rate is this times T^1.5 log(1/T)."""

    def __post_init__(self) -> None:
        _check_temperatures("few.temperature", (self.temperature,))
        require(self.temperature < 1, "few.temperature: Algorithm 1 needs less than 1")
        require(0 < self.share < 1, f"few.share={self.share} is outside (0, 1)")
        _check_least("few", self, prompts=1)


@dataclass(frozen=True)
class Partial:
    """Adam on the position scores alone, random tables on many prompts."""

    steps: int = 5000
    population: int = 256
    """Prompts that stand for the population where it is not a single prompt type."""

    def __post_init__(self) -> None:
        _check_least("partial", self, steps=1, population=1)


@dataclass(frozen=True)
class Samples:
    """A fixed number of fine-tuning prompts (Figure 3), random tables."""

    subjects: tuple[int, ...] = (8,)
    """Sizes of the random tables; none leaves the figure out."""
    sizes: tuple[int, ...] = (1, 8)
    """Numbers of prompts [N]."""
    modes: tuple[str, ...] = ("partial", "full-gd")
    """Ways to fine-tune: partial, full-gd, full-adam."""
    steps: int = 4000
    gd_rate: float = 40.0
    """The learning rate of full-gd is this times T^2."""

    def __post_init__(self) -> None:
        for mode in self.modes:
            if mode not in SAMPLE_MODES:
                raise unknown("sample mode", mode, SAMPLE_MODES)
        require(
            bool(self.sizes) and all(size >= 1 for size in self.sizes),
            f"samples.sizes={self.sizes}: give numbers of at least 1",
        )
        for name in ("subjects", "sizes", "modes"):
            _check_distinct(f"samples.{name}", getattr(self, name))
        _check_least("samples", self, steps=1)

    @property
    def few(self) -> int:
        """The number of prompts that should suffice: the paper's 8 where it is run."""
        return 8 if 8 in self.sizes else max(self.sizes)


@dataclass(frozen=True)
class Triple:
    """Three examples (Figure 2b)."""

    steps: int = 0
    """Adam steps; 0 leaves it out."""
    relations: int = 512
    temperature: float = 0.01
    max_seeds: int = 3

    def __post_init__(self) -> None:
        _check_temperatures("triple.temperature", (self.temperature,))
        _check_least("triple", self, steps=0, relations=2, max_seeds=1)


@dataclass(frozen=True)
class Pretrained:
    """The memory is learned from facts, then the key-query matrix (Figure 4)."""

    steps: int = 0
    """Of each of the two phases; 0 leaves it out."""
    temperature: float = 1.0
    """Of the first phase."""
    batch: int = 512
    """Facts in a step."""
    width: int = 12
    """Neurons, times n^2."""
    spread: float = 0.05
    """Standard deviation of the memory's initial weights."""
    weight_decay: float = 0.1
    """Of AdamW in the first phase."""
    decay: float = 0.4
    """Share of the first phase, at its end, over which the rate falls to 0."""
    triple_temperatures: tuple[float, ...] = (0.01, 0.06)
    """Of fine-tuning with three examples: the paper's, and one that suits a learned
    memory."""
    n_facts: int = 2000
    """Facts that the memory is tested on."""
    max_seeds: int = 3

    def __post_init__(self) -> None:
        _check_temperatures("pretrained.temperature", (self.temperature,))
        _check_temperatures("pretrained.triple_temperatures", self.triple_temperatures)
        _check_least(
            "pretrained", self, steps=0, batch=1, width=1, n_facts=100, max_seeds=1
        )


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
    learning_rate: float = 1e-3
    """Of Adam."""
    spread: float = 0.02
    """Standard deviation of the initial key-query matrix."""
    full_steps: int = 800
    """Adam steps on the whole key-query matrix."""
    full_batch: int = 256
    """Fresh prompts in each of them."""
    n_test: int = 2000
    """Unseen prompts for accuracies."""
    n_probe: int = 4000
    """Prompts for the linear probes."""
    probe_seeds: int = 3
    """Seeds whose models are probed; a probe takes longer than all else."""
    twins: bool = False
    """Train every arm that a claim of the paper rests on, and `full-affine`, once more
    on permuted answers: the null `shuffled`."""
    warmup: Warmup = field(default_factory=Warmup)
    few: Few = field(default_factory=Few)
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
        _check_temperatures("temperature", (self.temperature,))
        _check_relations("n_relations", n, m)
        for size in self.samples.subjects:
            require(size > k, f"samples.subjects={size}: give more than {k}")
            _check_relations("n_relations", size, m)
        if self.triple.steps + self.pretrained.steps:
            require(n > 3, f"three examples need more than three subjects, not {n}")
            _check_relations("triple.relations", n, self.triple.relations)
        require(self.full_steps >= 1, f"full_steps={self.full_steps}: at least 1")
        for name in ("n_test", "n_probe"):
            count = getattr(self, name)
            require(count >= 100, f"{name}={count}: at least 100")

    @property
    def has_probes(self) -> bool:
        """Whether the linear probes have enough prompts per relation, and chance."""
        n = self.n_subjects
        return n - self.n_examples >= 3 and 10 * n * (n - 1) <= self.n_probe


def _check_temperatures(name: str, given: tuple[float, ...]) -> None:
    for t in given:
        require(0 < t <= 10, f"{name}: {t} is outside (0, 10]")
    _check_distinct(name, given)


def _check_distinct(name: str, given: tuple[object, ...]) -> None:
    require(len(set(given)) == len(given), f"{name}={given}: one value twice")


def _check_least(group: str, config: object, **least: int) -> None:
    for name, bound in least.items():
        value = getattr(config, name)
        require(value >= bound, f"{group}.{name}={value}: at least {bound}")


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


QUICK = Config()

PAPER = Config(
    full_steps=2500,
    warmup=Warmup(
        temperatures=(0.05, 0.03, 0.02), draws=2, steps=200_000, escape_steps=20_000
    ),
    samples=Samples(
        subjects=(8, 16, 32),
        sizes=(1, 2, 4, 8, 16, 64),
        modes=("partial", "full-gd", "full-adam"),
    ),
    triple=Triple(steps=2500),
    pretrained=Pretrained(steps=1500),
)

ZOO = replace(
    QUICK,
    full_steps=600,
    full_batch=128,
    n_test=1000,
    # Too few for the probes, which would take most of a calibration's time.
    n_probe=500,
    warmup=Warmup(draws=7, steps=2000),
    samples=Samples(steps=1000),
    twins=True,
)

PRESETS = {
    "quick": Preset(QUICK, n_seeds=5, cost="a minute"),
    "paper": Preset(PAPER, n_seeds=10, cost="about half an hour"),
    "zoo": Preset(ZOO, n_seeds=3, cost="half a minute; the shipped run"),
}
