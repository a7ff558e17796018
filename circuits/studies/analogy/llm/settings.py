"""The sizes of the experiment on language models. Free of torch."""

from dataclasses import dataclass
from typing import Literal

from circuits.tuning.settings import Tuning
from trained.config import Preset, require

FITTED = 0.95
"""Share of a taught list that must be decoded where it is taught."""


@dataclass(frozen=True)
class Settings(Tuning):
    """Sizes, and how the facts are taught: every parameter, as the paper is read."""

    facts: int = 16
    """Facts that a seed draws; the paper has about 100."""
    lr: float = 1e-4
    """The paper's is lost; see `rates`."""
    rates: tuple[float, ...] = ()
    """Learning rates to choose from: the smallest with which joint training fits its
    premises, for all lessons; empty: `lr`."""
    loss: Literal["answer", "sentence"] = "answer"
    """What is trained on: the answers, or the sentences but for their first word. The
    paper does not say."""
    kept: float = 0.2
    """Share of the MLP's activations that count as large [20 %]."""
    replay: bool = False
    """Teach AS also with A replayed: does AS fail by forgetting?"""
    invented: bool = False
    """Teach joint and A also about subjects that do not exist."""
    exchanged: bool = False
    """Teach joint also with categories exchanged between facts."""
    level: bool = False
    """Judge the paper's level of success too, for a model of the paper."""
    resamples: int = 1000
    """Bootstrap samples of an interval over facts."""
    n_aligned: int = 32
    """Facts whose subjects are compared without fine-tuning; as many choose the
    layer."""
    at_once: int = 16
    """Prompts in one pass."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("facts", "n_aligned"):
            require(getattr(self, name) >= 2, f"{name}={getattr(self, name)}: >= 2")
        require(self.at_once >= 1, f"at_once={self.at_once}: at least 1")
        require(self.resamples >= 100, f"resamples={self.resamples}: at least 100")
        require(0 < self.kept <= 1, f"kept={self.kept}: above 0, at most 1")
        require(all(lr > 0 for lr in self.rates), f"rates={self.rates}: positive")


RATES = (2e-5, 5e-5, 1e-4, 2e-4)
PRESETS = {
    "quick": Preset(
        Settings(),
        n_seeds=1,
        cost="about four minutes on SmolLM2 (130 steps); one draw prints, three judge",
    ),
    "cpu": Preset(
        Settings(facts=48, rates=RATES, replay=True),
        n_seeds=3,
        cost="40 minutes on SmolLM2 (1,700 steps of 2.3 CPU seconds); resumable",
    ),
    "paper": Preset(
        Settings(
            facts=100,
            rates=RATES,
            replay=True,
            invented=True,
            exchanged=True,
            level=True,
            checkpointing=True,
        ),
        n_seeds=3,
        cost="for a GPU, not run here; with --dtype bfloat16 (the paper: float16)",
    ),
}
