"""The sizes of the lego study. Symbols in brackets are the paper's.

Three models are trained, and no verdict mixes them: the theory's (Algorithms 1 and 2),
the paper's experiment (`standard`), and one of ours, `folded`, whose FFN is frozen and
whose attention is two tables.
"""

from dataclasses import dataclass
from typing import Literal

from trained.config import require

from .action import action
from .checks import counts, rising, spell

Variant = Literal["plain", "residual", "norm", "positions"]
"""The transformer as in the paper, with a residual stream, with residual and LayerNorm,
with learned positions."""


@dataclass(frozen=True)
class Folded:
    """Our model: an FFN learned first, then frozen, and trained attention tables."""

    d_mlp: int = 256
    """Hidden width of the FFN."""
    ffn_steps: int = 1500
    """Most steps of the FFN, at length 1 with uniform attention."""
    ffn_rate: float = 0.005
    """Adam's rate for it."""
    ffn_batch: int = 512
    """Sentences of a step of it."""
    ffn_loss: float = 0.012
    """It stops once the loss of a batch is below this."""
    budgets: tuple[int, ...] = (100, 400)
    """Steps of the attention at which it is kept."""
    steps: int = 400
    """The budget of the main models."""
    lr: float = 0.1
    """Adam's rate for the attention, constant."""
    batch: int = 128
    """Sentences of a step at the training length; longer ones have as many queries."""
    masked_steps: int = 0
    """Steps of attentions trained with and without distractors; 0: none are."""
    record_every: int = 50
    """Steps between records of loss and attention."""
    n_record: int = 64
    """Sentences that they are measured on."""

    def __post_init__(self) -> None:
        rising("folded.budgets", self.budgets)
        require(bool(self.budgets), "folded.budgets is empty")
        require(
            self.steps in self.budgets,
            f"folded.steps={self.steps}: choose one of folded.budgets={self.budgets}",
        )
        require(self.lr > 0, f"folded.lr={self.lr}: must be positive")
        counts("folded", self, "d_mlp ffn_steps ffn_batch batch record_every n_record")
        masked = self.masked_steps
        require(masked >= 0, f"folded.masked_steps={masked}: at least 0")


@dataclass(frozen=True)
class SelfTraining:
    """Rounds of the folded model on longer chains that it labels itself."""

    lengths: tuple[int, ...] = (10, 20)
    """Lengths of the rounds, each labelled by the one before; none: no rounds."""
    steps: int = 30
    """Steps of every round."""
    base_steps: int = 1000
    """Most steps of the attention that they start from."""
    base_excess: float = 1.3
    """It stops once a batch's loss is within this factor of the FFN's own, which is
    what perfect attention would leave."""

    def __post_init__(self) -> None:
        rising("self_training.lengths", self.lengths)
        counts("self_training", self, "steps base_steps")


@dataclass(frozen=True)
class Standard:
    """The paper's experiment: all parameters of a one-layer transformer at once.

    The paper states the rate and the epochs; the other numbers are ours.
    """

    variants: tuple[Variant, ...] = ()
    """Which transformers are trained; none: the experiment is left out."""
    groups: tuple[str, ...] = ("C6", "S5")
    """Actions whose chains they learn."""
    n_variables: int = 170
    """Variable names [|X|]; lengths that need more are not tested."""
    epochs: int = 300
    """Passes over the sentences."""
    kept: tuple[int, ...] = ()
    """Epochs at which weights are kept too."""
    rate: float = 1e-4
    """Adam's rate."""
    n_sentences: int = 10_000
    """Training sentences of an epoch."""
    fresh: bool = True
    """Whether every epoch draws its sentences anew, or repeats the first ones."""
    batch: int = 128
    """Sentences of a step."""
    stop: float = 0.0
    """Training ends early once a batch's loss is below this."""
    d_token: int = 64
    """Width of a token's embedding; a clause has five of them."""
    token_std: float = 1.0
    """Standard deviation of embeddings before training."""
    position_std: float = 1.0
    """The same of learned positions, a null."""
    d_mlp: int = 512
    """Hidden width of the FFN."""
    n_held_out: int = 256
    """Sentences that the held-out loss is measured on."""
    gate: float = 0.01
    """Loss on fresh sentences below which a model counts as converged."""
    rounds: tuple[int, ...] = ()
    """Lengths of self-training, each answered by the model before; the first action
    that is not simply transitive has it."""
    round_steps: int = 1000
    """Updates of a round, and of its nulls."""
    n_round: int = 10_000
    """Sentences of a round."""
    seeds: int = 0
    """Most seeds that are trained; 0: as many as the run has."""
    null_seeds: int = 0
    """Seeds of the null that learns from shuffled values; 0: none is trained."""
    null_epochs: int = 0
    """Its epochs; 0: as many as the model has."""

    def __post_init__(self) -> None:
        spell(self, "groups", "standard.")
        require(
            len(set(self.variants)) == len(self.variants),
            f"standard.variants={self.variants}: one twice",
        )
        names = "epochs n_sentences batch d_token d_mlp n_held_out n_variables"
        counts("standard", self, f"{names} round_steps n_round")
        rising("standard.kept", self.kept)
        rising("standard.rounds", self.rounds)
        longest = max(self.rounds, default=0)
        require(
            longest < self.n_variables,
            f"standard.rounds={self.rounds}: below standard.n_variables="
            f"{self.n_variables}",
        )
        require(
            self.batch <= self.n_sentences,
            f"standard.batch={self.batch}: at most n_sentences={self.n_sentences}",
        )


@dataclass(frozen=True)
class Features:
    """How the theory's FFN is trained (stage 1)."""

    value_steps: int = 1000
    """Steps on one-step chains for the value's neurons."""
    grid_steps: int = 1000
    """The same for models of the grid and of another clip or cap."""
    value_rate: float = 200.0
    """Rate for each pair of an action and a value."""
    value_cap: float = 1.0
    """Largest change of an entry in a step."""
    variable_steps: int = 200
    """Steps for the variable's neurons."""
    variable_rate: float = 170.0
    """Rate for each variable."""
    variable_cap: float = 0.05
    """Largest change of an entry in a step: below sigma_0 for d up to 400."""
    adam_rate: float = 0.02
    """Rate of the null that is trained with Adam."""
    kept: int = 40
    """Times at which features that are trained alone are kept."""

    def __post_init__(self) -> None:
        steps = self.value_steps
        require(steps >= 40, f"theory.features.value_steps={steps}: at least 40")
        counts("theory.features", self, "variable_steps")


@dataclass(frozen=True)
class Attention:
    """How the theory's attention is trained (stage 2 and Algorithm 2)."""

    steps: int = 400
    """Steps of Algorithm 1 on both steps of L = 2."""
    batch: int = 256
    """Sentences per step; about three for every variable keep noise low."""
    rate: float = 30.0
    """Rate for each variable."""
    cap: float = 0.05
    """Largest change of an entry in a step."""
    weak_steps: int = 60
    """Of these, after so many weights are kept: attention is far from sharp."""
    gentle_steps: int = 300
    """Steps without a cap, so that phases can be seen."""
    gentle: float = 0.01
    """Share of the rate at which no step needs one."""
    per_variable: int = 3
    """Sentences per step for each variable, if that is more than the batch."""
    rule: float = 1.15
    """A stage ends once the loss is below this multiple of the clip's floor: d^-E1
    with an E1 just below the largest that the clip allows."""
    loose: float = 0.05
    """A loss at which a null ends, the same for every d."""
    rule_steps: int = 600
    """Most steps until the rule holds at L = 2."""
    rounds: int = 2
    """Self-training rounds of Algorithm 2, at lengths 4, 8, .."""
    round_steps: int = 200
    """Most steps of each round."""
    longer_steps: int = 50
    """Steps at L = 2 that stand beside a round: about as many as one takes."""
    most_clauses: int = 60_000
    """Most predicates of a step, which limits the sentences of long rounds."""

    def __post_init__(self) -> None:
        require(self.steps >= 40, f"theory.attention.steps={self.steps}: at least 40")
        names = "batch gentle_steps rule_steps round_steps longer_steps most_clauses"
        counts("theory.attention", self, names)
        require(self.rounds >= 0, f"theory.attention.rounds={self.rounds}: at least 0")


@dataclass(frozen=True)
class Theory:
    """The theory's model; the paper leaves its constants open."""

    groups: tuple[str, ...] = ("C6", "S5")
    """Actions whose chains are learned; without any the theory is left out."""
    feature_groups: tuple[str, ...] = ("S3", "S4")
    """Further actions of which only the FFN is trained."""
    n_variables: int = 90
    """Variable names [|X|]."""
    length: int = 80
    """Length that the models, trained on at most 2 steps, are tested at."""
    clip: float = 2.0
    """Logits are clipped at this times log d [C_B]."""
    power: int = 10
    """Of the smoothed ReLU, a large even integer [q]."""
    knee: float = 1.0
    """Where the smoothed ReLU becomes linear [rho]."""
    variable_neurons: int = 4
    """Neurons of each class of slot 4 [m]."""
    value_neurons: int = 16
    """The least of slot 5, which has two per value: with one, some pair of an action
    and a value often finds no neuron of its own."""
    grid: tuple[int, ...] = ()
    """Tokens in all [d] of the models that scaling is judged by; |X| is what is left
    beside actions, values and the blank, and actions that leave too few are skipped."""
    grid_groups: tuple[str, ...] = ("C6", "S4")
    """Their actions: the first of each kind are compared."""
    seeds: int = 0
    """Most seeds of all theory models; 0: as many as the run has."""
    grid_large: int = 200
    """Largest d for actions of more than ten values, whose FFN is dear."""
    clips: tuple[float, ...] = ()
    """Further C_B at which Algorithm 2 is run."""
    record_every: int = 10
    """Steps between records of Q's entries."""
    features: Features = Features()
    attention: Attention = Attention()

    def __post_init__(self) -> None:
        n = self.n_variables
        for name in ("groups", "feature_groups", "grid_groups"):
            spell(self, name, "theory.")
        rising("theory.grid", self.grid)
        for text in (*self.groups, *self.feature_groups, *self.grid_groups):
            require(
                action(text).is_transitive,
                f"{text}: the theory needs an action that leads from any value to any",
            )
        require(
            10 <= self.length < n,
            f"theory.length={self.length}: choose 10 to {n - 1}, below"
            f" theory.n_variables={n}",
        )
        longest = 2 ** (2 + self.attention.rounds)
        require(
            longest < n,
            f"theory.attention.rounds={self.attention.rounds}: its test at length"
            f" {longest} needs theory.n_variables above {longest}",
        )
        counts("theory", self, "variable_neurons value_neurons")


@dataclass(frozen=True)
class Trial:
    """What the trained models are measured on."""

    n_sentences: int = 25
    """Test sentences of each length."""
    n_short: int = 100
    """Fewest of the training length, as many as Figure 2 averages."""
    n_reach: int = 200
    """Of each length where it is asked how far a model reaches."""
    n_law: int = 25
    """Most that eps at the largest length is measured on: its spread is small."""
    n_labelled: int = 32
    """Chains whose labels are compared with the truth."""
    solved: float = 0.9
    """Share of chains right throughout at which a length counts as solved."""
    sharper: float = 1.5
    """Factor of the scores, at test."""
    doses: tuple[float, ...] = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Attention that is put elsewhere by hand."""
    dose_length: int = 40
    """Where it is: enough clauses to spread a leak over."""
    leak: float = 0.5
    """Attention leaked onto predicates or onto answers."""

    def __post_init__(self) -> None:
        names = "n_sentences n_short n_law n_labelled dose_length"
        counts("test", self, names)
        require(bool(self.doses), "test.doses is empty")


@dataclass(frozen=True)
class Config:
    """One setting of the study; what is compared follows from the groups' kinds."""

    groups: tuple[str, ...] = ("C6", "S5")
    """Group actions (see action.py) of the folded models, which are ours: the first
    simply transitive one is compared with the first that is not. Without any they are
    left out."""
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
    folded: Folded = Folded()
    self_training: SelfTraining = SelfTraining()
    standard: Standard = Standard()
    theory: Theory = Theory()
    test: Trial = Trial()
    twins: bool = False
    """Train every arm that a claim of the paper rests on once more, on permuted
    answers: the null `shuffled`."""

    def __post_init__(self) -> None:
        for name in ("groups", "extra_groups"):
            spell(self, name)
        both = sorted({*self.groups} & {*self.extra_groups})
        require(not both, f"extra_groups={both}: already among groups")
        counts("", self, "n_heads")
        self._check_lengths()

    def _check_lengths(self) -> None:
        n, rounds = self.n_variables, self.self_training.lengths
        if self.standard.variants:
            require(
                self.train_length < self.standard.n_variables,
                f"standard.n_variables={self.standard.n_variables}: above train_length"
                f"={self.train_length}",
            )
        require(bool(self.lengths), "lengths is empty")
        rising("lengths", self.lengths)
        for length in (self.train_length, *self.lengths, *rounds):
            require(
                2 <= length < n,
                f"length {length}: choose 2 to {n - 1}, as a chain of length L has"
                " L + 1 variables; or raise n_variables",
            )
        require(
            all(length > self.train_length for length in rounds),
            f"self_training.lengths={rounds}: above train_length={self.train_length}",
        )

    @property
    def simple(self) -> str | None:
        """The first simply transitive action of `groups`."""
        return first_of_kind(self.groups, simply=True)

    @property
    def symmetric(self) -> str | None:
        """The first action of `groups` that is not simply transitive."""
        return first_of_kind(self.groups, simply=False)

    @property
    def self_group(self) -> str | None:
        """The action that self-training starts from, if any."""
        chosen = self.symmetric or self.simple
        return chosen if self.self_training.lengths else None


def first_of_kind(groups: tuple[str, ...], *, simply: bool) -> str | None:
    """The first action that is simply transitive, or the first that is not."""
    kinds = (text for text in groups if action(text).is_simply_transitive == simply)
    return next(kinds, None)
