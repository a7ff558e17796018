"""The sizes of the lego study. Symbols in brackets are the paper's."""

from dataclasses import dataclass
from typing import Literal

from trained.config import Preset, require

from .action import action, spelled

Standard = Literal["plain", "residual", "norm", "positions"]
"""An ordinary transformer as it is, with a residual stream, with residual and
LayerNorm, with learned positions."""


@dataclass(frozen=True)
class Config:
    """One setting of the study; what is compared follows from the groups' kinds."""

    groups: tuple[str, ...] = ("C6", "S5")
    """Group actions (see action.py); the first simply transitive one is compared with
    the first that is not."""
    extra_groups: tuple[str, ...] = ()
    """Further actions that are only reported."""
    n_variables: int = 170
    """Variable names [|X|]; a chain of length L needs L + 1 of them."""
    train_length: int = 5
    """Length that the attention is trained on."""
    lengths: tuple[int, ...] = (5, 10, 20, 40, 80, 160)
    """Test lengths."""
    n_heads: int = 2
    """Attention heads."""
    d_mlp: int = 256
    """Hidden width of the FFN."""
    ffn_steps: int = 1500
    """Most steps of the FFN, which stops once it has learned all pairs (g, y)."""
    budgets: tuple[int, ...] = (100, 200, 400, 600)
    """Steps of the attention at which it is kept and compared."""
    steps: int = 600
    """The budget of the main models."""
    lr: float = 0.1
    """Adam's rate for the attention, constant."""
    n_sentences: int = 25
    """Test sentences of each length."""
    self_lengths: tuple[int, ...] = (10, 20, 40)
    """Rounds of self-training, each labelled by the one before."""
    self_steps: int = 30
    """Steps of every round."""
    masked_steps: int = 0
    """Steps of attentions trained with and without distractors; 0: none are."""
    standard: tuple[Standard, ...] = ()
    """Ordinary transformers trained by the paper's recipe, Adam at 1e-4."""
    standard_epochs: int = 300
    """Epochs of that recipe."""
    theory_groups: tuple[str, ...] = ("C6", "S5")
    """Actions of the theory models; without any the theory is left out."""
    theory_variables: int = 90
    """Variables of the theory models."""
    theory_value_steps: int = 1000
    """Steps of the theory's FFN on one-step chains."""
    theory_steps: int = 400
    """Steps of the theory's attention in Algorithm 1."""
    theory_batch: int = 256
    """Sentences per step of it; about three for every variable keep noise low."""
    theory_rounds: int = 2
    """Self-training rounds of Algorithm 2, at lengths 4, 8, .."""
    theory_length: int = 80
    """Length that the theory models, trained on at most 2 steps, are tested at."""
    feature_groups: tuple[str, ...] = ("S3", "S4")
    """Actions whose learned features are compared with the theorems."""

    def __post_init__(self) -> None:
        # A run must not depend on a file outside it.
        for name in ("groups", "extra_groups", "theory_groups", "feature_groups"):
            texts = tuple(spelled(text) for text in getattr(self, name))
            object.__setattr__(self, name, texts)
            require(len(set(texts)) == len(texts), f"{name}={texts}: one twice")
            for text in texts:
                require(len(set(action(text).table)) > 1, f"{text}: moves no value")
        require(bool(self.groups), "groups is empty")
        both = sorted({*self.groups} & {*self.extra_groups})
        require(not both, f"extra_groups={both}: already among groups")
        self._check_lengths()
        self._check_training()
        self._check_theory()

    def _check_lengths(self) -> None:
        n = self.n_variables
        require(bool(self.lengths), "lengths is empty")
        require(
            len(set(self.standard)) == len(self.standard),
            f"standard={self.standard}: one twice",
        )
        for name in ("lengths", "self_lengths", "budgets"):
            given = getattr(self, name)
            require(
                list(given) == sorted(set(given)), f"{name}={given}: must be rising"
            )
        for length in (self.train_length, *self.lengths, *self.self_lengths):
            require(
                2 <= length < n,
                f"length {length}: choose 2 to {n - 1}, as a chain of length L has"
                " L + 1 variables; or raise n_variables",
            )
        require(
            all(length > self.train_length for length in self.self_lengths),
            f"self_lengths={self.self_lengths}: above train_length={self.train_length}",
        )

    def _check_training(self) -> None:
        require(bool(self.budgets), "budgets is empty")
        require(self.budgets[0] >= 1, f"budgets={self.budgets}: at least 1")
        require(
            self.steps in self.budgets,
            f"steps={self.steps}: choose one of budgets={self.budgets}",
        )
        require(self.lr > 0, f"lr={self.lr}: must be positive")
        counts = ("n_heads", "d_mlp", "ffn_steps", "n_sentences", "self_steps")
        for name in (*counts, "standard_epochs"):
            value = getattr(self, name)
            require(value >= 1, f"{name}={value}: at least 1")
        require(self.masked_steps >= 0, f"masked_steps={self.masked_steps}: at least 0")

    def _check_theory(self) -> None:
        n = self.theory_variables
        for text in (*self.theory_groups, *self.feature_groups):
            require(
                action(text).is_transitive,
                f"{text}: the theory needs an action that leads from any value to any",
            )
        require(
            10 <= self.theory_length < n,
            f"theory_length={self.theory_length}: choose 10 to {n - 1}, below"
            f" theory_variables={n}",
        )
        longest = 2 ** (2 + self.theory_rounds)
        require(
            self.theory_rounds >= 0 and longest < n,
            f"theory_rounds={self.theory_rounds}: its test at length {longest} needs"
            f" theory_variables above {longest}",
        )
        require(self.theory_batch >= 1, f"theory_batch={self.theory_batch}: at least 1")
        for name in ("theory_value_steps", "theory_steps"):
            value = getattr(self, name)
            require(value >= 40, f"{name}={value}: at least 40")

    @property
    def simple(self) -> str | None:
        """The first simply transitive action of `groups`."""
        kinds = (text for text in self.groups if action(text).is_simply_transitive)
        return next(kinds, None)

    @property
    def symmetric(self) -> str | None:
        """The first action of `groups` that is not simply transitive."""
        kinds = (text for text in self.groups if not action(text).is_simply_transitive)
        return next(kinds, None)


QUICK = Config()

PAPER = Config(
    extra_groups=("S3reg", "S4", "C24"),
    budgets=(100, 200, 400, 600, 900),
    n_sentences=1000,
    masked_steps=400,
    standard=("plain", "residual", "norm", "positions"),
    theory_variables=170,
    theory_value_steps=6000,
    theory_batch=512,
    theory_rounds=4,
    theory_length=160,
)

ZOO = Config(
    n_variables=90,
    lengths=(5, 10, 20, 40, 80),
    d_mlp=128,
    budgets=(100, 200),
    steps=200,
    n_sentences=25,
    theory_groups=(),
)
"""Small enough to ship, and trained so little that length still matters."""

PRESETS = {
    "quick": Preset(QUICK, n_seeds=3, cost="about three minutes"),
    "paper": Preset(PAPER, n_seeds=5, cost="about a day; for a GPU, untested there"),
    "zoo": Preset(ZOO, n_seeds=1, cost="half a minute; the shipped run"),
}
