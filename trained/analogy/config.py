"""The sizes of the analogy study. Symbols in brackets are the paper's."""

from dataclasses import dataclass

from trained.config import Preset, require
from trained.errors import unknown

PARTS = ("block", "relu", "gpt", "linear")
CURRICULA = ("joint", "SA", "AS_T", "AS_E")
_LEAST = {
    "head_steps": 50,
    "relu_entities": 4,
    "gpt_heads": 1,
    "gpt_layers": 2,
    "slow_seeds": 1,
    "linear_layers": 2,
}


@dataclass(frozen=True)
class Config:
    """Which models are trained, on which curricula, and how large they are."""

    parts: tuple[str, ...] = PARTS
    """One-layer block, ReLU block, GPT-2, deep linear network."""
    curricula: tuple[str, ...] = CURRICULA
    """Of the analogy task; the two-hop curricula always run."""
    n_entities: int = 40
    """Tuples of the one-layer block [n]."""
    d_model: int = 200
    """Width of the one-layer block [d]; orthonormal embeddings need 4n + 2."""
    head_steps: int = 2000
    """Most gradient steps of a head, with attention and values frozen [T_F]."""
    multiplicity: int = 3
    """Copies of the similarity premises in joint training [k]."""
    multiplicities: tuple[int, ...] = (1, 3, 5)
    """Values of k for Table 5, ascending."""
    relu_entities: int = 30
    """Tuples of the ReLU block."""
    gpt_entities: int = 24
    """Tuples of GPT-2."""
    gpt_width: int = 128
    gpt_layers: int = 4
    gpt_heads: int = 4
    gpt_multiplicities: tuple[int, ...] = (3,)
    """Values of k for the GPT-2 column of Table 5, ascending."""
    slow_seeds: int = 1
    """Most seeds of GPT-2 and of the ReLU block at its second init scale."""
    linear_layers: int = 8
    """Depth of the deep linear network [L]."""
    linear_width: int = 256
    """Its width; it has one label for every eight dimensions."""

    def __post_init__(self) -> None:
        for given, valid, what in (
            (self.parts, PARTS, "part"),
            (self.curricula, CURRICULA, "curriculum"),
        ):
            for name in given:
                if name not in valid:
                    raise unknown(what, name, valid)
            require(bool(given), f"give at least one {what} of {', '.join(valid)}")
            require(len(set(given)) == len(given), f"one {what} twice: {given}")
        self._check_sizes()
        for name in ("multiplicities", "gpt_multiplicities"):
            ks = getattr(self, name)
            ascending = list(ks) == sorted(set(ks)) and min(ks, default=1) >= 1
            require(ascending, f"{name}={ks}: give ascending numbers of at least 1")
        k = self.multiplicity
        require(k >= 1, f"multiplicity={k}: at least 1")

    @property
    def block_ks(self) -> tuple[int, ...]:
        """Every k that the one-layer block is trained with, ascending."""
        return tuple(sorted({self.multiplicity, *self.multiplicities}))

    @property
    def gpt_ks(self) -> tuple[int, ...]:
        """Every k that GPT-2 is trained with, ascending."""
        return tuple(sorted({self.multiplicity, *self.gpt_multiplicities}))

    def _check_sizes(self) -> None:
        for name, n, d in (
            ("n_entities", self.n_entities, self.d_model),
            ("gpt_entities", self.gpt_entities, self.gpt_width),
        ):
            width = "d_model" if name == "n_entities" else "gpt_width"
            require(
                n >= 4 and d >= 4 * n + 2,
                f"{name}={n}, {width}={d}: needs at least 4 and a width of 4n + 2",
            )
        require(
            self.gpt_width % self.gpt_heads == 0,
            f"gpt_heads={self.gpt_heads}: must divide gpt_width={self.gpt_width}",
        )
        for name, least in _LEAST.items():
            given = getattr(self, name)
            require(given >= least, f"{name}={given}: at least {least}")
        require(
            self.linear_width >= 32 and self.linear_width % 8 == 0,
            f"linear_width={self.linear_width}: a multiple of 8, at least 32",
        )


QUICK = Config()

PAPER = Config(
    n_entities=100,
    d_model=512,
    head_steps=6000,
    gpt_entities=100,
    gpt_width=768,
    gpt_layers=12,
    gpt_heads=12,
    gpt_multiplicities=(1, 3, 5),
    slow_seeds=3,
)

ZOO = Config(
    parts=("block", "linear"),
    n_entities=12,
    d_model=50,
    linear_layers=6,
    linear_width=64,
)

PRESETS = {
    "quick": Preset(QUICK, n_seeds=3, cost="under two minutes"),
    "zoo": Preset(ZOO, n_seeds=1, cost="half a minute"),
    "paper": Preset(PAPER, n_seeds=3, cost="days; an hour or two with a GPU"),
}
