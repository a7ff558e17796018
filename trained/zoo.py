"""Which runs are shipped, and where; read without torch, as `list` does."""

from pathlib import Path

SHIPPED = Path(__file__).parent / "checkpoints"
"""Where the shipped runs are."""


def shipped_names(folder: Path = SHIPPED) -> tuple[str, ...]:
    """The runs that are shipped."""
    return tuple(sorted(file.parent.name for file in folder.glob("*/manifest.json")))
