"""The sizes of Algorithm 1: three subjects (Theorem 2), and any number (Theorem 3).

A run's draws come from its first seed and an index, so that there are as many whatever
the number of seeds.
"""

from dataclasses import dataclass

from trained.config import require

THRESHOLD = 0.0875
"""The temperature above which, with three subjects, the best attention drops a pair."""

FULL, HALF, QUARTER, EIGHTH = 1.0, 0.5, 0.25, 0.125
"""Shares of the affine table's rows."""


@dataclass(frozen=True)
class Warmup:
    """Algorithm 1 with three subjects and all six bijections (Theorem 2)."""

    temperatures: tuple[float, ...] = (0.05, 0.04, 0.03)
    """Temperatures of the runs [T]."""
    hot: float = 0.12
    """The null's temperature, above `THRESHOLD`."""
    draws: int = 20
    """Perturbations at each temperature."""
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
    starts: int = 30
    """Random starts of the search for a better optimum, beside the two pairwise."""

    def __post_init__(self) -> None:
        require(bool(self.temperatures), "warmup.temperatures is empty")
        check_temperatures("warmup.temperatures", self.temperatures)
        require(
            max(*self.temperatures, THRESHOLD) < self.hot <= 10,
            f"warmup.hot={self.hot}: above {THRESHOLD} and all warmup.temperatures",
        )
        check_least("warmup", self, draws=1, steps=1, stride=1, points=1, starts=1)
        require(self.draws <= 50, f"warmup.draws={self.draws}: at most 50")
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


@dataclass(frozen=True)
class Few:
    """Algorithm 1 from few prompts on part of an affine table (Theorems 1, 3)."""

    temperatures: tuple[float, ...] = (0.002,)
    """Of the runs; none leaves them out. The theorem asks for T <= 1/(40 log n)."""
    subjects: tuple[int, ...] = (8, 32)
    """Sizes of the tables [n]."""
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """Numbers of prompts [N]."""
    draws: int = 10
    """Of each cell: table, prompts and perturbation."""
    share: float = QUARTER
    """Of the affine table's rows: on all of them every prompt has the same loss."""
    reach: float = 20.0
    """Stage 2 has this times log(1/T) / T steps [C2]; 8 is too few on seeds 100-109."""
    first_rate: float = 100.0
    """The learning rate of stage 1 is this times T^1.5 log(1/T)."""
    second_rate: float = 40.0
    """The learning rate of stage 2 is this times T^2."""
    n_test: int = 1000
    """Unseen prompts of each table."""
    n_decode: int = 200
    """Of these, prompts that the real model decodes."""

    def __post_init__(self) -> None:
        check_low("few", self.temperatures)
        for name in ("subjects", "sizes"):
            check_distinct(f"few.{name}", getattr(self, name))
            require(bool(getattr(self, name)), f"few.{name} is empty")
        require(0 < self.share <= 1, f"few.share={self.share} is outside (0, 1]")
        check_least("few", self, draws=1, n_test=100, n_decode=1)
        require(min(self.sizes) >= 1, f"few.sizes={self.sizes}: at least 1")

    @property
    def most(self) -> int:
        """The number of prompts that should suffice: 32 where it is run."""
        return 32 if 32 in self.sizes else max(self.sizes)


@dataclass(frozen=True)
class FirstStep:
    """The one step of stage 1, on growing parts of an affine table (Lemma 9)."""

    subjects: int = 16
    """Size of the affine table [n]; a prime power."""
    shares: tuple[float, ...] = (FULL, HALF, QUARTER, EIGHTH)
    """Shares of its rows that are tried."""
    prompts: int = 8192
    """The lemma needs more than 1/T^3; with 512 the pairs differ by up to 0.014."""
    draws: int = 3
    """0 leaves it out."""
    temperature: float = 0.002
    """Of its runs [T], below 1."""

    def __post_init__(self) -> None:
        check_low("first_step", (self.temperature,))
        check_distinct("first_step.shares", self.shares)
        check_least("first_step", self, subjects=3, prompts=1, draws=0)


@dataclass(frozen=True)
class Rate:
    """How many steps stage 2 takes, by temperature (Lemmas 10, 11)."""

    subjects: int = 16
    """Size of the affine table [n]; a prime power."""
    shares: tuple[float, ...] = (FULL, HALF, QUARTER)
    """Shares of its rows that are tried."""
    prompts: int = 32
    """Prompts that a run learns from [N]."""
    draws: int = 10
    """Of each share and temperature: table, prompts and perturbation."""
    temperatures: tuple[float, ...] = (0.008, 0.004, 0.002)
    """The first is where the null's rate is the same; none leaves it out."""
    reach: float = 6.0
    """As that of `few`."""
    stride: int = 10
    """Gradient steps between two records."""

    def __post_init__(self) -> None:
        check_low("rate", self.temperatures)
        check_distinct("rate.shares", self.shares)
        check_least("rate", self, subjects=3, prompts=1, draws=1, stride=1)


def check_temperatures(name: str, given: tuple[float, ...]) -> None:
    """Refuse what is no temperature, or one twice."""
    for t in given:
        require(0 < t <= 10, f"{name}: {t} is outside (0, 10]")
    check_distinct(name, given)


def check_low(group: str, given: tuple[float, ...]) -> None:
    """Refuse temperatures for which Algorithm 1 has no rate."""
    check_temperatures(f"{group}.temperature", given)
    require(
        max(given, default=0) < 1, f"{group}.temperature: Algorithm 1 needs less than 1"
    )


def check_distinct(name: str, given: tuple[object, ...]) -> None:
    """Refuse one value twice."""
    require(len(set(given)) == len(given), f"{name}={given}: one value twice")


def check_least(group: str, config: object, **least: int) -> None:
    """Refuse sizes that are too small."""
    for name, bound in least.items():
        value = getattr(config, name)
        require(value >= bound, f"{group}.{name}={value}: at least {bound}")
