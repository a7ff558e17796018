"""The sizes of the bridge study, and what is trained, as data; free of torch.

Symbols in brackets are the paper's. The paper's text states hardly a number: unless
said, the values are ours; those that were searched, and how, are in
`results/bridge-search.json`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from trained.config import Preset, require

Maps = Literal["shift", "random", "degenerate"]
"""pi_k(i): (i + k) mod N; random for every k; i itself (one object for any kappa)."""

Task = Literal["identity", "none", "half", "permuted"]
"""The zero-hop task: [b] -> b, nothing, [b] -> b for a random half of the bridges, or
[b_j] -> b_{s(j)} for a permutation s that is one cycle."""

Factors = Literal["two", "one"]
"""Z = E W with both trained, or Z itself."""

Regime = Literal["small", "standard", "decay", "std"]
"""How the GPT begins and is held down: weights of std d_in^-gamma with the small or the
standard gamma; the standard one with weight decay; weights of std 0.02."""

Descent = Literal["plain", "scaled", "decayed"]
"""Gradient descent; the same with gradients of norm 1; with explicit weight decay."""

Variant = Literal["untied", "random", "shown", "decayed"]
"""Ours: an untied head with random position offsets; that with random maps; two-hop
items of other bridges at the standard start too; Emb-MLP with explicit weight decay."""

Drawn = Literal["shift", "random"]

BOTH: tuple[Task, Task] = ("identity", "none")
STARTS: tuple[Regime, Regime] = ("small", "standard")


@dataclass(frozen=True)
class Embedding:
    """Emb-MLP, trained with Adam on all facts at once."""

    width: int = 64
    """Width, where twice N is less: the optimum without identity has rank 2N - 1."""
    std: float = 0.02
    """Standard deviation of the initial factors."""
    steps: int = 800
    """Adam steps, each on all facts."""
    lr: float = 0.01
    """Adam's learning rate."""

    def __post_init__(self) -> None:
        require_positive("embedding", self, "width", "std", "steps", "lr")


@dataclass(frozen=True)
class Direction:
    """Emb-MLP whose direction is compared with the program's optimum."""

    n_subjects: int = 10
    """Subjects, and as many objects [N], of these models."""
    steps: int = 4000
    """Steps of plain descent; its direction is read at 1/16, 1/4 and all of them."""
    lr: float = 2.0
    """Rate of plain descent."""
    scaled_steps: int = 3000
    """Steps of descent with gradients of norm 1, unless it stops before."""
    scaled_lr: float = 0.05
    """Length of those steps."""
    stop_below: float = 1e-12
    """Loss at which scaled descent stops, in double precision."""
    weight_decay: float = 1e-3
    """Of the contrast; the descent that is judged has none."""

    def __post_init__(self) -> None:
        require(self.n_subjects >= 3, f"direction.n_subjects={self.n_subjects}: >= 3")
        require(self.steps >= 16, f"direction.steps={self.steps}: at least 16")
        require_positive("direction", self, "lr", "scaled_steps", "scaled_lr")
        require_positive("direction", self, "stop_below", "weight_decay")
        require_decay("direction", self.weight_decay, self.lr)

    @property
    def course(self) -> tuple[int, int, int]:
        """The steps at which the direction of plain descent is read."""
        return self.steps // 16, self.steps // 4, self.steps


@dataclass(frozen=True)
class Gpt:
    """The small GPT by AdamW on all facts; arms differ in their start or decay only."""

    regimes: tuple[Regime, ...] = ("small", "standard")
    """Those that are trained; small and standard always are."""
    compared: tuple[int, ...] = (3,)
    """Complexities besides 1 at which it is trained without identity too."""
    gamma: float = 1.2
    """Small initialisation: a weight with d inputs has std d ** -gamma."""
    standard_gamma: float = 0.5
    """The paper's standard initialisation."""
    std: float = 0.02
    """Of the regime `std`: what GPT-2's code does."""
    decay: float = 3.0
    """Weight decay of the regime `decay`."""
    d_model: int = 128
    """Width of the residual stream."""
    n_layers: int = 3
    """Alignment is read after all blocks but the last."""
    n_heads: int = 4
    """Attention heads of a block."""
    n_context: int = 6
    """Positions that the model has."""
    max_offset: int = 2
    """Prompts of the untied head begin at a random position up to this one."""
    steps: int = 120
    """AdamW steps; chosen with rate and warm-up from one grid on seeds 900 to 902."""
    lr: float = 2e-3
    """AdamW's learning rate, once it has risen."""
    warmup: int = 50
    """Steps over which the rate rises, at most half of all."""
    record_every: int = 4
    """Steps between records, where the order of events is read."""

    def __post_init__(self) -> None:
        require_distinct("gpt.regimes", self.regimes)
        require_distinct("gpt.compared", self.compared)
        needed = {"small", "standard"} <= {*self.regimes}
        require(needed, f"gpt.regimes={self.regimes}: small and standard are needed")
        small, standard = self.gamma, self.standard_gamma
        require(
            0 < standard < small < math.inf,
            f"gpt.gamma={small}: finite and above gpt.standard_gamma={standard} > 0",
        )
        require(self.n_layers >= 2, f"gpt.n_layers={self.n_layers}: at least 2")
        require_positive("gpt", self, "d_model", "n_heads", "steps", "lr", "std")
        require_positive("gpt", self, "record_every")
        width = self.d_model
        require(
            width % self.n_heads == 0,
            f"gpt.d_model={width}: a positive multiple of {self.n_heads}",
        )
        require(self.warmup >= 0, f"gpt.warmup={self.warmup}: at least 0")
        # Three tokens are the longest prompt, two the longest that is trained on.
        fits = 0 <= self.max_offset <= self.n_context - 2 and self.n_context >= 3
        require(fits, f"gpt.max_offset={self.max_offset}: 0 to n_context - 2")
        require_decay("gpt", self.decay, self.lr)

    @property
    def decayed(self) -> float:
        """How far weight decay alone shrinks a weight, in powers of e."""
        return self.lr * self.decay * self.steps


@dataclass(frozen=True)
class Theory:
    """Where the margin program is solved."""

    sizes: tuple[int, ...] = (5, 7, 10, 20)
    """Values of N with one object per subject."""
    tilts: int = 20
    """Random directions in which an optimum is tilted."""
    tilt: float = 1e-4
    """What a tilt adds to the objective: this times <G, Z>, G standard normal."""
    largest_tilted: int = 20
    """Tilted up to this N: every tilt is a program of its own."""
    tie_size: int = 8
    """N with two objects per subject."""

    def __post_init__(self) -> None:
        require(bool(self.sizes), "theory.sizes is empty")
        every = (*self.sizes, self.tie_size)
        require(
            all(3 <= n <= 200 for n in every),
            f"theory.sizes={self.sizes}, theory.tie_size={self.tie_size}: 3 to 200",
        )
        require(self.tilts >= 1, f"theory.tilts={self.tilts}: at least 1")
        require_positive("theory", self, "tilt")
        largest = self.largest_tilted
        require(largest >= 6, f"theory.largest_tilted={largest}: at least 6")


@dataclass(frozen=True)
class Config:
    """One setting of the study; arms with and without identity are always both run."""

    n_subjects: int = 20
    """Subjects, and as many objects [N]."""
    complexity: int = 3
    """Objects per subject [kappa] where alignment is read."""
    complexities: tuple[int, ...] = (3, 5)
    """Objects per subject besides 1, for every model."""
    maps: Drawn = "shift"
    """How bridges lead to objects."""
    identity: float = 1.0
    """Share of bridges with the zero-hop task, where it is on; 0 switches it off."""
    variants: tuple[Variant, ...] = ()
    """Further arms, of ours."""
    twins: bool = False
    """Train what paper leaves compare on permuted answers too: the null `shuffled`."""
    embedding: Embedding = field(default_factory=Embedding)
    direction: Direction = field(default_factory=Direction)
    gpt: Gpt = field(default_factory=Gpt)
    theory: Theory = field(default_factory=Theory)

    def __post_init__(self) -> None:
        n = self.n_subjects
        require(n >= 4, f"n_subjects={n}: at least 4")
        require_distinct("complexities", self.complexities)
        for kappa in (self.complexity, *self.complexities):
            require(2 <= kappa < n, f"complexity {kappa}: choose 2 to {n - 1}")
        require(0 <= self.identity <= 1, f"identity={self.identity}: choose 0 to 1")
        require_distinct("variants", self.variants)

    @property
    def kappas(self) -> tuple[int, ...]:
        """Every complexity, from 1 up."""
        return tuple(sorted({1, self.complexity, *self.complexities}))

    @property
    def compared(self) -> tuple[int, ...]:
        """The complexities at which the GPT is trained with identity and without."""
        chosen = {1, self.complexity, *self.gpt.compared}
        return tuple(kappa for kappa in self.kappas if kappa in chosen)

    @property
    def high(self) -> tuple[int, ...]:
        """The complexities that count as high: 3 and more."""
        return tuple(kappa for kappa in self.kappas if kappa >= 3)


@dataclass(frozen=True)
class Recipe:
    """One arm as data; its name says how it differs from the others."""

    model: Literal["embedding", "direction", "gpt"]
    complexity: int = 1
    task: Task = "identity"
    maps: Maps | None = None
    """None for the configuration's."""
    factors: Factors = "two"
    descent: Descent = "plain"
    """Of the direction arms."""
    regime: Regime = "small"
    head: Literal["tied", "untied"] = "tied"
    """Tied without position offsets, as in the paper; untied with random offsets."""
    two_hop: Literal["none", "half"] = "none"
    """Whether two-hop items of a random half of the bridges are trained on."""

    @property
    def name(self) -> str:
        """For example `gpt-k3-identity-standard`."""
        parts = [
            f"{self.model}-k{self.complexity}-{self.task}",
            "unfactorised" if self.factors == "one" else "",
            self.maps or "",
            "" if self.descent == "plain" else self.descent,
            "" if self.regime == "small" else self.regime,
            "" if self.head == "tied" else self.head,
            "" if self.two_hop == "none" else "two-hop",
        ]
        return "-".join(part for part in parts if part)


def embedding(complexity: int = 1, task: Task = "identity") -> Recipe:
    """Emb-MLP trained with Adam."""
    return Recipe("embedding", complexity, task)


def direction(task: Task = "identity", descent: Descent = "plain") -> Recipe:
    """Emb-MLP trained by gradient descent, small enough for the program."""
    return Recipe("direction", task=task, descent=descent)


def gpt(
    complexity: int = 1, task: Task = "identity", regime: Regime = "small"
) -> Recipe:
    """The paper's GPT: tied head, positions from 0."""
    return Recipe("gpt", complexity, task, regime=regime)


def shown(task: Task = "identity", regime: Regime = "small") -> Recipe:
    """The paper's GPT that is shown two-hop items of other bridges as well."""
    return Recipe("gpt", task=task, regime=regime, two_hop="half")


def untied(complexity: int = 1, task: Task = "identity") -> Recipe:
    """The small-initialisation GPT with an untied head and position offsets."""
    return Recipe("gpt", complexity, task, head="untied")


def recipes(config: Config) -> list[Recipe]:
    """Every arm, the dearest of each kind first: shared processes end together."""
    return [*_gpts(config), *_untied(config), *_embeddings(config)]


def _gpts(config: Config) -> Iterator[Recipe]:
    """The paper's GPT, with and without identity, for every regime and complexity."""
    regimes = config.gpt.regimes
    for kappa in reversed(config.kappas):
        for regime in regimes:
            # Decay is compared where complexity is high, std 0.02 where it is not.
            both = kappa in config.compared and (regime != "decay" or kappa >= 3)
            if regime != "std" or kappa == 1:
                yield from (gpt(kappa, t, regime) for t in (BOTH if both else BOTH[:1]))
    yield from (gpt(1, "permuted", regime) for regime in STARTS)
    starts = STARTS if "shown" in config.variants else STARTS[:1]
    yield from (shown(task, regime) for regime in starts for task in BOTH)


def _untied(config: Config) -> Iterator[Recipe]:
    """Ours."""
    several = untied(config.complexity)
    if "untied" in config.variants:
        yield from (replace(several, task=task) for task in BOTH)
        yield replace(several, regime="standard")
        yield from (untied(1, task) for task in (*BOTH, "half"))
    if "random" in config.variants:
        yield from (replace(several, task=task, maps="random") for task in BOTH)


def _embeddings(config: Config) -> Iterator[Recipe]:
    descents: list[Descent] = ["plain", "scaled"]
    descents += ["decayed"] if "decayed" in config.variants else []
    for descent in descents:
        yield from (direction(task, descent) for task in BOTH)
    yield replace(direction(descent="scaled"), factors="one")
    for kappa in reversed(config.kappas):
        yield from (embedding(kappa, task) for task in BOTH)
        if kappa > 1:
            yield replace(embedding(kappa), maps="degenerate")
    yield replace(embedding(), factors="one")


def twin_recipes(config: Config) -> list[Recipe]:
    """The arms that get a shuffled twin: what the leaves of the paper compare."""
    if not config.twins:
        return []
    kappas = sorted({1, config.complexity})
    found = [gpt(k, task) for k in kappas for task in BOTH]
    found += [gpt(k, regime="standard") for k in kappas]
    found += [direction(task) for task in BOTH]
    found += [embedding(1, task) for task in BOTH]
    return [*found, replace(embedding(), factors="one")]


def require_positive(group: str, config: object, *names: str) -> None:
    """Refuse fields of a group that are not above 0."""
    for name in names:
        value = getattr(config, name)
        require(0 < value < math.inf, f"{group}.{name}={value}: must be positive")


def require_distinct(name: str, values: tuple[object, ...]) -> None:
    """Refuse a list with one value twice."""
    require(len(set(values)) == len(values), f"{name}={values}: one value twice")


def require_decay(group: str, decay: float, lr: float) -> None:
    """Refuse a weight decay that would turn weights round."""
    fits = 0 <= decay * lr < 1
    require(fits, f"{group} decay={decay}: 0 to {1 / lr:g}")


QUICK = Config()

PAPER = Config(
    complexities=(2, 3, 4, 5),
    variants=("untied", "random", "shown", "decayed"),
    gpt=Gpt(
        regimes=("small", "standard", "std", "decay"),
        compared=(2, 3, 4, 5),
        gamma=1.3,
        steps=1000,
        lr=1e-3,
    ),
    theory=Theory(sizes=(5, 7, 10, 20, 50), largest_tilted=50),
)
"""What two cores can do in an hour or two; larger sizes want a GPU."""

ZOO = Config(
    n_subjects=10,
    complexities=(3,),
    variants=("decayed",),
    twins=True,
    embedding=Embedding(width=32, steps=400),
    direction=Direction(steps=1000),
    gpt=Gpt(gamma=1.4, d_model=24, n_layers=2, steps=300, lr=2e-3),
    theory=Theory(sizes=(5, 7, 8), tilts=5),
)
"""Small enough to ship, and what `calibrate` judges; its sizes were chosen on seeds 900
to 902. Too narrow for the full effect with several objects."""

PRESETS = {
    "quick": Preset(QUICK, n_seeds=3, cost="about 75 seconds"),
    "paper": Preset(PAPER, n_seeds=5, cost="about an hour"),
    "zoo": Preset(ZOO, n_seeds=3, cost="half a minute; the shipped run"),
}
