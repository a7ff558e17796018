"""The sizes of the analogy study; symbols in brackets are the paper's. Torch-free."""

from dataclasses import dataclass

from trained.config import Preset, require
from trained.errors import unknown

PARTS = ("block", "relu", "gpt", "linear")
CURRICULA = ("joint", "SA", "AS_T", "AS_E")


def _require_width(group: str, n: int, d: int, width: str = "d_model") -> None:
    require(
        n >= 4 and d >= 4 * n + 3,
        f"{group}.n_entities={n}, {group}.{width}={d}: needs at least 4 and a width"
        " of 4n + 3",
    )


def _require_ascending(name: str, ks: tuple[int, ...]) -> None:
    ascending = list(ks) == sorted(set(ks)) and min(ks, default=1) >= 1
    require(ascending, f"{name}={ks}: give ascending numbers of at least 1")


def _require_least(group: str, config: object, **least: int) -> None:
    for name, bound in least.items():
        given = getattr(config, name)
        key = f"{group}.{name}" if group else name
        require(given >= bound, f"{key}={given}: at least {bound}")


@dataclass(frozen=True)
class BlockSizes:
    """The one-layer block."""

    n_entities: int = 40
    """Tuples [n]."""
    d_model: int = 200
    """Width [d]; orthonormal embeddings need 4n + 3."""
    n_neurons: int = 10
    """Neurons per class [m]."""
    init_std: float = 3e-4
    """Of every parameter [sigma_0]."""
    large_init: float = 10.0
    """How many times larger the control starts whose attention loses its balance."""
    multiplicities: tuple[int, ...] = (1, 3, 5)
    """Values of k for Table 5, ascending."""
    limit_ks: tuple[int, ...] = (1, 3, 5, 9, 17)
    """Values of k for the limit of Proposition 1, ascending; stage 1 alone."""

    def __post_init__(self) -> None:
        _require_width("block", self.n_entities, self.d_model)
        _require_ascending("block.multiplicities", self.multiplicities)
        _require_ascending("block.limit_ks", self.limit_ks)
        several = len(self.limit_ks) >= 2
        require(several, f"block.limit_ks={self.limit_ks}: give at least two")

    @property
    def limit_k(self) -> int:
        """The k that the limit is judged at: the last but one [9]."""
        return self.limit_ks[-2]


@dataclass(frozen=True)
class Values:
    """Stage 1 of the block: attention and values, the head frozen."""

    steps: int = 62
    """[T_A]"""
    rate: float = 5.0
    """At n = 100 and d = 512; other sizes keep the alignment. Calibrated, with the
    steps, on one number of the paper: the cosine of SA, 0.9689."""
    unfrozen: float = 3e-4
    """Rate of the values in a second phase that trains them too, as a share of their
    first: by then the head is about a thousand times larger. Chosen on seeds 100 to
    102, the largest of eight shares at which SA transfers with its values unfrozen."""
    limit: float = 4.0
    """How many times stronger stage 1 is where k goes to its limit."""

    def __post_init__(self) -> None:
        _require_least("values", self, steps=1)


@dataclass(frozen=True)
class Head:
    """Stage 2 of the block: the head, attention and values frozen."""

    steps: int = 2000
    """Most gradient steps [T_F]."""
    loss: float = 0.005
    """It stops once its training loss is below this."""
    rate: float = 300.0
    """Of each neuron at width 512, in a phase that ends the curriculum."""
    first_rate: float = 150.0
    """The same in the first of two phases."""
    late_rate: float = 100.0
    """The same in the second phase of AS_T, whose target values are short."""
    check_every: int = 50
    """Gradient steps between two looks at the loss."""
    fit_every: int = 10
    """The same where the first step with every premise answered is looked for."""
    rounds: int = 5
    """Most rounds of accelerated descent that end the second phase of AS, which took
    plain descent 140,000 steps (seed 100); its weights are kept after each."""
    first_round: int = 250
    """Steps of the first round; each is twice as long as the one before."""
    boost: float = 16.0
    """Their step, in units of one over the largest curvature there can be. Chosen on
    seed 100 among 1, 4, 16 and 40, which all converge."""
    plain_steps: int = 0
    """Steps of one seed of AS_T by plain descent instead; 0: it is not trained."""

    def __post_init__(self) -> None:
        _require_least("head", self, check_every=1, fit_every=1, rounds=1)
        _require_least("head", self, first_round=1, plain_steps=0)
        least = max(self.check_every, 2 * self.fit_every)
        _require_least("head", self, steps=least)


@dataclass(frozen=True)
class Scale:
    """How large the ReLU block starts, and the rate that suits it."""

    scale: float
    """Factor of the logits, in place of a norm."""
    std: float
    """Standard deviation of the initial weights."""
    rate: float
    """Learning rate of gradient descent."""


@dataclass(frozen=True)
class Relu:
    """The ReLU block, trained end to end at two init scales."""

    n_entities: int = 30
    """Tuples [n]."""
    n_neurons: int = 32
    """Per class."""
    steps: int = 200
    """Most steps of a phase."""
    loss: float | None = None
    """Each phase ends at this loss; None: after all its steps, as many for every
    curriculum."""
    main: Scale = Scale(64.0, 0.03, 0.4)
    small: Scale = Scale(256.0, 0.003, 0.1)

    def __post_init__(self) -> None:
        _require_least("relu", self, n_entities=4, n_neurons=1, steps=1)


@dataclass(frozen=True)
class Gpt:
    """GPT-2 from scratch, its embeddings orthonormal and frozen."""

    n_entities: int = 16
    """Tuples [n]."""
    width: int = 72
    """Width of the residual stream; orthonormal embeddings need 4n + 3."""
    layers: int = 4
    """Transformer blocks."""
    heads: int = 4
    """Attention heads of a block; must divide width and labelled.width."""
    steps: int = 200
    """Most steps of a phase."""
    loss: float | None = None
    """Each phase ends at this loss, with a new optimiser for the next; None: after
    all its steps, as many for every curriculum."""
    lr: float = 2e-3
    """Chosen on seeds 100 to 102, joint training and bridges: with 1e-3 the cosines
    are 0.93 to 0.97 after 200 steps, 0.92 to 0.97 after 300; with 2e-3 0.97 to 0.99."""
    weight_decay: float = 0.01
    """Of AdamW."""
    init_std: float = 0.005
    """Four times smaller than GPT-2's: at 0.02 joint training transfers in part."""
    multiplicities: tuple[int, ...] = (3,)
    """Values of k for the GPT-2 column of Table 5, ascending."""

    def __post_init__(self) -> None:
        _require_width("gpt", self.n_entities, self.width, width="width")
        _require_least("gpt", self, layers=2, heads=1, steps=1)
        fits = self.width % self.heads == 0
        require(fits, f"gpt.heads={self.heads}: must divide gpt.width={self.width}")
        _require_ascending("gpt.multiplicities", self.multiplicities)


@dataclass(frozen=True)
class Labelled:
    """GPT-2 on single orthonormal tokens with shared labels (Figure 1b).

    Its layers, heads and training are those of `Gpt`.
    """

    n_labels: int = 24
    """Labels."""
    inputs_per_label: int = 2
    """Tokens that share a label; in a null each has its own."""
    width: int = 72
    """Width of the residual stream; orthonormal tokens need as many dimensions."""

    def __post_init__(self) -> None:
        _require_least("labelled", self, n_labels=2, inputs_per_label=2)
        n_inputs = self.n_labels * self.inputs_per_label
        require(
            self.width >= n_inputs,
            f"labelled.width={self.width}: {n_inputs} orthonormal inputs need as many",
        )


@dataclass(frozen=True)
class Linear:
    """The deep linear network."""

    layers: int = 8
    """Depth [L]."""
    width: int = 256
    """It has one label for every eight dimensions."""
    inputs_per_label: tuple[int, ...] = (2, 4)
    """One network each."""
    steps: int = 4
    """Of a layer's turn [T]."""
    rate: float = 4.0
    """For 64 inputs; it grows with them, so that a turn adds as much at any size."""

    def __post_init__(self) -> None:
        _require_least("linear", self, layers=2, steps=1)
        fits = self.width >= 32 and self.width % 8 == 0
        require(fits, f"linear.width={self.width}: a multiple of 8, at least 32")
        _require_ascending("linear.inputs_per_label", self.inputs_per_label)
        fits = all(2 <= number <= 8 for number in self.inputs_per_label)
        require(fits, f"linear.inputs_per_label={self.inputs_per_label}: from 2 to 8")

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return self.width // 8


@dataclass(frozen=True)
class Config:
    """Which models are trained, on which curricula, and how large they are."""

    parts: tuple[str, ...] = PARTS
    """One-layer block, ReLU block, GPT-2, deep linear network."""
    curricula: tuple[str, ...] = CURRICULA
    """Of the analogy task; the two-hop curricula always run."""
    multiplicity: int = 3
    """Copies of the similarity premises in joint training [k]."""
    null_seeds: int = 1
    """Most seeds of the arms that only nulls and replays rest on."""
    ours: bool = True
    """Train GPT-2 and the ReLU block also on what only claims of ours rest on: the
    other reading of attribution first, and replays."""
    twins: bool = False
    """Train every arm that a claim of the paper rests on once more, on permuted
    answers: the null `shuffled`."""
    random_draws: int = 5
    """Random directions that the control of an edit is the mean over."""
    block: BlockSizes = BlockSizes()
    values: Values = Values()
    head: Head = Head()
    relu: Relu = Relu()
    gpt: Gpt = Gpt()
    labelled: Labelled = Labelled()
    linear: Linear = Linear()

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
        _require_least("", self, multiplicity=1, null_seeds=1, random_draws=1)
        fits = self.labelled.width % self.gpt.heads == 0
        require(fits, f"gpt.heads={self.gpt.heads}: must divide labelled.width")

    @property
    def block_ks(self) -> tuple[int, ...]:
        """Every k that the one-layer block is trained with, ascending."""
        return tuple(sorted({self.multiplicity, *self.block.multiplicities}))

    @property
    def gpt_ks(self) -> tuple[int, ...]:
        """Every k that GPT-2 is trained with, ascending."""
        return tuple(sorted({self.multiplicity, *self.gpt.multiplicities}))


QUICK = Config()

PAPER = Config(
    block=BlockSizes(n_entities=100, d_model=512),
    head=Head(steps=6000, rounds=6, plain_steps=2_000_000),
    relu=Relu(n_entities=100, steps=700),
    gpt=Gpt(
        n_entities=24,
        width=108,
        layers=12,
        heads=12,
        steps=300,
        lr=5e-4,
        init_std=0.002,
        multiplicities=(1, 3, 5),
    ),
    labelled=Labelled(width=108),
)
"""The paper's sizes where two cores can bear them: GPT-2 has its depth and heads, but
24 tuples at width 108; `gpt.n_entities=100 gpt.width=420` (768) is for a GPU. Rate,
steps and init of the 12 layers: of seven settings on seed 100 the one with which joint
training, SA and bridges all transfer and the first and last align by 0.95. The ReLU
block: steps in proportion to the tuples (quick's 200 are too few for 100 tuples: seeds
100, 101, `results/analogy-search.json`); `relu.loss=0.0135`, Table 4's, is cheaper."""

ZOO = Config(
    ours=False,
    twins=True,
    block=BlockSizes(n_entities=9, d_model=39, large_init=40.0, limit_ks=(1, 3, 9, 17)),
    head=Head(boost=4.0, rounds=2, first_round=2000),
    relu=Relu(
        n_entities=4,
        n_neurons=4,
        steps=800,
        main=Scale(64.0, 0.03, 0.025),
        small=Scale(256.0, 0.003, 0.0125),
    ),
    gpt=Gpt(n_entities=4, width=20, layers=2, heads=2),
    labelled=Labelled(n_labels=8, width=16),
    linear=Linear(layers=6, width=32),
)

PRESETS = {
    "quick": Preset(QUICK, n_seeds=3, cost="under two minutes"),
    "zoo": Preset(ZOO, n_seeds=3, cost="a minute"),
    "paper": Preset(PAPER, n_seeds=3, cost="an hour or two"),
}
