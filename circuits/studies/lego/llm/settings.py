"""The sizes of the experiment on language models. Free of torch."""

from dataclasses import dataclass

from trained.config import Preset, require


@dataclass(frozen=True)
class Settings:
    """Sizes of the experiment on a language model."""

    shortest: int = 2
    """Length at which both groups should do alike."""
    short: int = 4
    """Length at which heads are chosen and most is measured."""
    long: int = 16
    """The largest length."""
    n_shortest: int = 4
    """Chains of the length `shortest` for a seed."""
    n_short: int = 6
    """Chains of the length `short` for a seed."""
    n_long: int = 2
    """Chains of the length `long` for a seed."""
    n_hidden: int = 4
    """Of the short chains, how many are run again with predicates hidden."""
    n_solved: int = 2
    """Solved chains before the one that is read."""
    solved_length: int = 2
    """Their length."""
    n_best: int = 3
    """Heads that are chosen on some chains and judged on others."""
    choosing_seed: int = 10_007
    """Draws the chains to choose heads on."""
    sharpening: float = 1.5
    """Factor of the scores."""
    at_once: int = 4
    """Prompts in one pass; they are long."""

    def __post_init__(self) -> None:
        lengths = (self.shortest, self.short, self.long)
        rising = 2 <= lengths[0] < lengths[1] < lengths[2]
        require(rising, f"lengths {lengths}: must rise from 2 on")
        most = 48
        require(self.long <= most, f"long={self.long}: there are names for {most}")

    def count(self, length: int) -> int:
        """Chains of a length for a seed."""
        counts = (self.n_shortest, self.n_short, self.n_long)
        return dict(zip((self.shortest, self.short, self.long), counts, strict=True))[
            length
        ]


PRESETS = {
    "quick": Preset(Settings(), n_seeds=3, cost="about two minutes on SmolLM2"),
    "cpu": Preset(
        Settings(n_shortest=12, n_short=18, n_long=6, n_hidden=12),
        n_seeds=5,
        cost="about a quarter of an hour on SmolLM2",
    ),
    "paper": Preset(
        Settings(n_shortest=40, n_short=60, n_long=20, n_hidden=40),
        n_seeds=5,
        cost="for a GPU, not run here; the paper has no language model",
    ),
}
