"""A dataset: rows that were checked, and the hash that tells it from others."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trained.errors import BadInput

from .files import columns_of, entries
from .row import Row, row_of

MOST_ROLES = 16
"""Names of roles in one dataset: every pair of them is measured."""


@dataclass(frozen=True)
class Dataset:
    """Prompts with their answers, corrupt twins and roles.

    Attributes:
        name: of the file.
        rows: in its order.
    """

    name: str
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise BadInput(f"{self.name}: it holds no row")
        if len(self.roles) > MOST_ROLES:
            raise BadInput(
                f"{self.name}: {len(self.roles)} names of roles; at most {MOST_ROLES}"
            )

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The names of all roles, in the order in which they come."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.roles))

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The names of all groups, in the order in which they come."""
        named = (row.group for row in self.rows if row.group is not None)
        return tuple(dict.fromkeys(named))

    @cached_property
    def sha256(self) -> str:
        """A hash of what the rows say, whatever the format they came in."""
        found = hashlib.sha256()
        for row in self.rows:
            found.update(json.dumps(row.content()).encode() + b"\n")
        return found.hexdigest()


def read_dataset(path: str | Path, columns: Sequence[str] = ()) -> Dataset:
    """The prompts in a file.

    Every row has a `prompt` and may have `answer` (a text, or a list of accepted
    ones), `corrupt` and `corrupt_answer` (a prompt that asks for something else),
    `roles` (name -> a phrase that occurs once, or [start, end] in characters) and
    `group`.

    Args:
        path: a `.jsonl`, `.csv` or `.parquet` file.
        columns: `old=new` for columns that the file names otherwise.

    Raises:
        BadInput: names the row and the field.
    """
    file = Path(path)
    renamed = columns_of(columns)
    if not file.is_file():
        raise BadInput(f"{path}: there is no such file")
    found = (row_of(entry, where) for where, entry in entries(file, renamed))
    return Dataset(file.name, tuple(found))


def dataset_of(rows: Iterable[Mapping[str, Any]], name: str = "rows") -> Dataset:
    """The prompts in memory, with the fields that a file would have."""
    numbered = enumerate(rows, 1)
    return Dataset(name, tuple(row_of(row, f"{name}: row {n}") for n, row in numbered))
