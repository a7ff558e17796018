"""A named configuration of a study with its usual seeds and its cost."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Config = TypeVar("Config")


@dataclass(frozen=True)
class Preset(Generic[Config]):
    """What `--preset` chooses."""

    config: Config
    n_seeds: int
    cost: str
    """How long it takes on two CPU cores, for people."""
