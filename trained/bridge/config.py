"""The sizes of the bridge study. Symbols in brackets are the paper's."""

from dataclasses import dataclass
from typing import Literal

from trained.config import Preset, require

N_HEADS = 4

Variant = Literal[
    "tied", "tied_several", "standard", "decay", "fixed", "random", "dose"
]
"""Tied head with one object and with several; standard initialisations with one
object; weight decay on them; positions without offset; random maps; half and permuted
identity with several objects."""


@dataclass(frozen=True)
class Config:
    """One setting of the study; arms with and without identity are always both run."""

    n_subjects: int = 20
    """Subjects, and as many objects [N]."""
    complexity: int = 3
    """Objects per subject [kappa] where there are several; one is always run too."""
    sweep: tuple[int, ...] = ()
    """Further complexities of the GPT in Figure 2."""
    embedding_sweep: tuple[int, ...] = (2, 3, 4)
    """Complexities of Emb-MLP in Figure 2, besides 1."""
    maps: Literal["shift", "random"] = "shift"
    """How bridges lead to objects."""
    identity: float = 1.0
    """Share of bridges with the zero-hop task, where it is on; 0 switches it off."""
    gamma: float = 1.2
    """Small initialisation: a weight with d inputs has std d ** -gamma."""
    gammas: tuple[float, ...] = (0.5,)
    """Larger initialisations to compare with; the smallest gamma is the standard."""
    weight_decay: float = 0.0
    """AdamW's decay in every GPT arm but those of `weight_decays`."""
    weight_decays: tuple[float, ...] = (1.0,)
    """Decays of the variant that tries them on the standard initialisation."""
    d_model: int = 128
    """Width of the GPT."""
    n_layers: int = 3
    """Depth of the GPT; alignment is read after its first block."""
    steps: int = 120
    """Full-batch steps of the GPT."""
    lr: float = 1e-3
    """Learning rate of the GPT."""
    theory_sizes: tuple[int, ...] = (5, 7, 10, 20)
    """Values of N at which the margin program is solved."""
    variants: tuple[Variant, ...] = ("tied",)
    """Extra arms that are only reported."""
    variant_seeds: int = 1
    """Seeds of the variants."""

    def __post_init__(self) -> None:
        n = self.n_subjects
        require(n >= 4, f"n_subjects={n}: at least 4")
        require(self.complexity >= 2, f"complexity={self.complexity}: at least 2")
        require(bool(self.embedding_sweep), "embedding_sweep is empty")
        for kappa in (self.complexity, *self.sweep, *self.embedding_sweep):
            require(2 <= kappa < n, f"complexity {kappa}: choose 2 to {n - 1}")
        require(0 <= self.identity <= 1, f"identity={self.identity}: choose 0 to 1")
        require(self.n_layers >= 2, f"n_layers={self.n_layers}: at least 2")
        width = self.d_model
        require(
            width > 0 and width % N_HEADS == 0,
            f"d_model={width}: a positive multiple of {N_HEADS}",
        )
        for name in ("sweep", "embedding_sweep", "gammas", "weight_decays", "variants"):
            given = getattr(self, name)
            require(len(set(given)) == len(given), f"{name}={given}: one value twice")
        require(
            bool({self.complexity, *self.embedding_sweep} & {2, 3, 4}),
            "complexity and embedding_sweep: one of them must hold 2, 3 or 4",
        )
        self._check_training()

    def _check_training(self) -> None:
        require(self.lr > 0, f"lr={self.lr}: must be positive")
        require(bool(self.gammas), "gammas is empty")
        for gamma in self.gammas:
            require(
                0 < gamma < self.gamma, f"gammas={gamma}: between 0 and {self.gamma}"
            )
        for decay in self.weight_decays:
            require(decay > 0, f"weight_decays={decay}: 0 is the control")
        for decay in (self.weight_decay, *self.weight_decays):
            require(
                0 <= decay * self.lr < 1, f"weight decay {decay}: 0 to {1 / self.lr}"
            )
        require(self.steps >= 1, f"steps={self.steps}: at least 1")
        require(
            self.variant_seeds >= 1, f"variant_seeds={self.variant_seeds}: at least 1"
        )
        sizes = self.theory_sizes
        require(bool(sizes), "theory_sizes is empty")
        require(all(3 <= n <= 200 for n in sizes), f"theory_sizes={sizes}: 3 to 200")

    @property
    def small_gammas(self) -> tuple[float, ...]:
        """The compared initialisations that count as small, 0.8 to 1.2."""
        return tuple(gamma for gamma in self.gammas if 0.8 <= gamma <= 1.2)

    @property
    def standard_gamma(self) -> float:
        """The largest initialisation that is compared with."""
        return min(self.gammas)


QUICK = Config()

PAPER = Config(
    n_subjects=100,
    sweep=(2, 4, 6, 8),
    embedding_sweep=(2, 3, 4, 5, 6, 8),
    gamma=1.0,
    gammas=(0.5, 0.8),
    weight_decays=(0.1, 1.0),
    d_model=400,
    n_layers=4,
    steps=20_000,
    lr=1e-4,
    theory_sizes=(5, 7, 10, 20, 50),
    variants=("tied", "tied_several", "standard", "decay", "fixed", "random", "dose"),
    variant_seeds=5,
)

ZOO = Config(
    n_subjects=6,
    complexity=2,
    embedding_sweep=(2,),
    gamma=1.4,
    d_model=32,
    steps=150,
    lr=2e-3,
    theory_sizes=(5,),
    variants=(),
)
"""Small enough to ship; too narrow for the full effect with several objects."""

PRESETS = {
    "quick": Preset(QUICK, n_seeds=3, cost="about two minutes"),
    "paper": Preset(PAPER, n_seeds=5, cost="days; for a GPU, untested there"),
    "zoo": Preset(ZOO, n_seeds=1, cost="half a minute; the shipped run"),
}
