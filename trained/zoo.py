"""The shipped runs: small trained models, so that a figure needs no training.

`trained/checkpoints/<name>/` is an ordinary run directory.
"""

from pathlib import Path

from .errors import unknown
from .store import Run

FOLDER = Path(__file__).parent / "checkpoints"
"""Where the shipped runs are."""


def names() -> tuple[str, ...]:
    """The runs that are shipped."""
    return tuple(sorted(file.parent.name for file in FOLDER.glob("*/manifest.json")))


def load(name: str) -> Run:
    """A shipped run."""
    if name not in names():
        raise unknown("zoo run", name, names())
    return Run.open(FOLDER / name)


def open_run(path_or_name: str) -> Run:
    """The run at a path, or the shipped one of that name."""
    if path_or_name in names() and not Path(path_or_name).exists():
        return load(path_or_name)
    if not Path(path_or_name).exists():
        raise unknown("run or zoo run", path_or_name, names())
    return Run.open(Path(path_or_name))
