"""What took long is stored as soon as it is measured, and then read, not repeated.

A folder belongs to one model, one set of rows and one set of settings:

    manifest.json            what it belongs to
    asked.json               the preset and the seeds that were last asked for
    verdicts.json            what was judged, if all of it was
    <name>.safetensors       what was measured, with a hash of its content
    <name>/state-*           the state of what is under way; gone when it is measured
    <name>/model/            the tuned weights, where they were asked for
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from trained.errors import BadInput
from trained.files import sweep
from trained.lock import owned
from trained.state import read_checked, write_checked

LANGUAGE = "language"
"""The kind of such a folder, in its manifest."""

Tensors = dict[str, Tensor]


class Missing(BadInput):
    """What was asked of a folder that is only read, and is not in it."""


class Keeper:
    """Keeps in a folder, or nowhere.

    Attributes:
        path: the folder; None: nothing is kept.
        only_reads: whether what is not there is `Missing`, rather than measured.
    """

    def __init__(self, path: Path | None = None, *, only_reads: bool = False) -> None:
        self.path, self.only_reads = path, only_reads

    def kept(
        self, name: str, make: Callable[[Path | None], Mapping[str, Tensor]]
    ) -> Tensors:
        """What was measured under a name, or is now.

        Args:
            name: tells it from all else in the folder.
            make: folder for its state (None: it has none) -> tensors by name.
        """
        if self.path is None:
            return dict(make(None))
        folder = self.path / re.sub(r"[^A-Za-z0-9.=_-]+", "-", name)
        file = folder.with_name(f"{folder.name}.safetensors")
        if file.exists():
            return read_checked(file)[0]
        if self.only_reads:
            raise Missing(f"{self.path}: '{name}' was not measured there")
        with owned(folder, work="measuring in"):
            sweep(folder)
            # Copies: two names may stand for one tensor, and a file takes no such.
            made = {k: t.detach().cpu().contiguous() for k, t in make(folder).items()}
            found = {k: t.clone() for k, t in made.items()}
            write_checked(file, found)
            for state in folder.glob("state-*"):
                state.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()
        return found
