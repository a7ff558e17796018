"""The sizes of the experiment on language models. Free of torch."""

from dataclasses import dataclass

from trained.config import Preset, require


@dataclass(frozen=True)
class Settings:
    """The sizes of the experiment."""

    pairs: int = 4
    """Demonstrations; with fewer, a correlation over pairs says nothing."""
    separators: tuple[str, ...] = (" ->", ":")
    """Used in turn."""
    groups: int = 8
    """Groups of typed prompts (one for each relation) in a half of the subjects."""
    shared_groups: int = 3
    """Groups of prompts (the item after, the item before) for each list."""
    probe_groups: int = 12
    """The same for the probe of the pairing."""
    least_known: int = 4
    """Subjects that the model must know, two for each half."""
    heads: int = 3
    """Heads that are chosen on some prompts and judged on others."""
    least_mass: float = 0.05
    """Heads that give all demonstrations together less than this are left out."""
    clear: float = 0.2
    """A property counts as readable if its best layer is this far above chance."""
    probe_stride: int = 2
    """Every so many layers the relation is probed."""
    pairing_stride: int = 3
    """The same for the pairing."""
    patch_layers: int = 7
    """The layer of the exchange is chosen among about so many."""
    batch: int = 16
    """Prompts in one pass."""

    def __post_init__(self) -> None:
        require(self.pairs >= 2, f"pairs={self.pairs}: at least 2")
        require(bool(self.separators), "separators is empty")
        require(
            self.probe_groups >= self.shared_groups >= 1,
            f"probe_groups={self.probe_groups}: at least the"
            f" {self.shared_groups} of shared_groups, and those at least 1",
        )


PRESETS = {
    "quick": Preset(Settings(), n_seeds=3, cost="about two minutes on SmolLM2"),
    "cpu": Preset(
        Settings(groups=33, shared_groups=12, probe_groups=12),
        n_seeds=5,
        cost="about a quarter of an hour on SmolLM2: 100 prompts of each relation",
    ),
    "paper": Preset(
        Settings(groups=67, shared_groups=25, probe_groups=25),
        n_seeds=5,
        cost="for a GPU, not run here: 200 prompts of each relation",
    ),
}
