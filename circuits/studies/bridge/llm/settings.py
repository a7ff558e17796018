"""The sizes of the experiment on language models; the paper states none."""

from dataclasses import dataclass

from circuits.tuning.settings import Tuning
from trained.config import Preset, require


@dataclass(frozen=True)
class Settings(Tuning):
    """Sizes, and how the single hops are taught."""

    bridges: int = 12
    """Bridges that a seed draws; each is taught and judged."""
    rows: int = 2
    """Rows of each bridge, at most."""
    two_hop_share: float = 0.0
    """Two-hop items of other bridges in the fine-tuning, over the rows judged."""
    least_rows: int = 5
    """With fewer rows a subset is not judged."""
    at_once: int = 16
    """Prompts in one pass, where states are read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.bridges >= 4, f"bridges={self.bridges}: >= 4")
        for name in ("rows", "least_rows", "at_once"):
            require(getattr(self, name) >= 1, f"{name}={getattr(self, name)}: >= 1")
        share = self.two_hop_share
        require(0 <= share <= 10, f"two_hop_share={share}: 0 to 10")


PRESETS = {
    "quick": Preset(
        Settings(),
        n_seeds=1,
        cost="about four minutes on SmolLM2 (110 steps); bridges are the replicates",
    ),
    "cpu": Preset(
        Settings(bridges=40, rows=4),
        n_seeds=1,
        cost="20 minutes on SmolLM2 (320 steps of 2.5 CPU seconds); resumable",
    ),
    "paper": Preset(
        Settings(bridges=50, rows=40, checkpointing=True),
        n_seeds=3,
        cost="for a GPU, not run here; with --dtype bfloat16 and --data FILE",
    ),
}
