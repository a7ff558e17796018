"""Long tables: one row per value, one column per axis; the schema of every signal.

A table holds numbers and names from the data, never times or paths, and is written with
settings of its own, so that its bytes follow from its content.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trained.files import write_bytes

from .request import SIGNALS

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1
EMBEDDING = -1
"""The layer of what stands before the first one."""

Column = NDArray[Any]
Part = dict[str, Column]
"""Columns of equal length; names are numbers of labels."""

AXES: dict[str, tuple[str, ...]] = {
    "prompts": ("prompt", "group"),
    "lens": ("prompt", "group", "layer", "answer", "token"),
    "attention": ("prompt", "group", "layer", "head", "query", "key"),
    "alignment": ("prompt", "group", "layer", "source", "target"),
    "patching": ("prompt", "group", "layer", "place"),
    "attribution": ("prompt", "group", "component"),
    "state": ("prompt", "group", "place", "position"),
}
VALUES: dict[str, tuple[str, ...]] = {
    "prompts": ("tokens", "answers", "answer_tokens"),
    "lens": ("log_prob", "rank", "null_log_prob"),
    "attention": ("mass", "null_mass"),
    "alignment": ("cosine", "null_cosine", "centred", "null_centred"),
    "patching": (
        *("patched", "null_patched", "clean", "corrupt"),
        *("recovery", "null_recovery"),
    ),
    "attribution": ("value", "null_value"),
    "state": ("state",),
}
"""Beside the axes, in this order; those that begin with null are of the null."""

NAMED = ("group", "query", "key", "source", "target", "place", "component")
"""Axes whose places have names."""


def kind_of(name: str) -> str:
    """The schema of a table: its own name, or that of raw activations."""
    return name if name in (*SIGNALS, "prompts") else "state"


def folder_of(name: str) -> str:
    """A signal's name as that of a folder.

    >>> folder_of("resid_post:12")
    'resid_post-12'
    """
    return name.replace(":", "-")


def long(
    axes: Mapping[str, Sequence[int] | Column],
    values: Mapping[str, Column],
    keep: NDArray[np.bool_],
) -> Part:
    """One row for every place of a grid that is kept, in row-major order.

    Args:
        axes: the label of every place on every axis of the grid.
        values: arrays with these axes; more axes stay what they are.
        keep: True at the places that exist; broadcast against the grid.
    """
    shape = tuple(len(labels) for labels in axes.values())
    where = np.nonzero(np.broadcast_to(keep, shape))
    columns = zip(axes.items(), where, strict=True)
    found = {axis: np.asarray(labels)[index] for (axis, labels), index in columns}
    return found | {name: value[where] for name, value in values.items()}


@dataclass(frozen=True)
class Labels:
    """The names on the axes of a dataset's tables."""

    groups: tuple[str, ...]
    roles: tuple[str, ...]
    components: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The roles, and the last token."""
        return (*self.roles, "last")

    @property
    def queries(self) -> tuple[str, ...]:
        """Who looks."""
        return ("last", *self.roles)

    @property
    def keys(self) -> tuple[str, ...]:
        """What is looked at; the first token is where attention rests."""
        return (*self.roles, "first")

    @property
    def patched(self) -> tuple[str, ...]:
        """Where clean states are put into corrupt runs."""
        return (*self.roles, "changed", "last")

    def of(self, kind: str, axis: str) -> tuple[str, ...]:
        """The names on an axis of a table."""
        if axis == "place":
            return self.patched if kind == "patching" else self.places
        return {
            "group": self.groups,
            "query": self.queries,
            "key": self.keys,
            "source": self.places,
            "target": self.places,
            "component": self.components,
        }[axis]


def table(
    name: str, parts: Sequence[Part], groups: Mapping[int, int], labels: Labels
) -> "pa.Table":
    """The table of a signal, in the order of the prompts.

    Args:
        name: of the signal.
        parts: its columns, some prompts at a time, in any order.
        groups: the number of every prompt's group; -1 for none.
        labels: what the numbers on named axes mean.
    """
    import pyarrow as pa

    kind = kind_of(name)
    columns = _whole(parts, kind)
    columns["group"] = np.array([groups[n] for n in columns["prompt"].tolist()], int)
    order = np.argsort(columns["prompt"], kind="stable")
    named = (*AXES[kind], *VALUES[kind])
    arrays = [_array(n, columns[n][order], kind, labels) for n in named]
    about = {"schema": SCHEMA, "signal": name, "axes": AXES[kind]}
    stored = pa.Table.from_arrays(arrays, names=list(named))
    return stored.replace_schema_metadata({"reasonscope": json.dumps(about)})


def _whole(parts: Sequence[Part], kind: str) -> Part:
    """Columns of all parts; without any, empty ones."""
    if not parts:
        axes = {axis: np.zeros(0, int) for axis in AXES[kind]}
        shape = (0, 1) if kind == "state" else 0
        return axes | {v: np.zeros(shape, np.float32) for v in VALUES[kind]}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _array(name: str, column: Column, kind: str, labels: Labels) -> Any:
    import pyarrow as pa

    if name in NAMED:
        codes = pa.array(column.astype(np.int32), mask=column < 0)
        names = pa.array(labels.of(kind, name), pa.string())
        return pa.DictionaryArray.from_arrays(codes, names)
    if name in AXES[kind] or kind == "prompts":
        return pa.array(column.astype(np.int32))
    if column.ndim == 2:
        flat = pa.array(np.ascontiguousarray(column).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, column.shape[1])
    return pa.array(column)


def write(path: Path, stored: "pa.Table") -> None:
    """Write a table, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = pa.BufferOutputStream()
    kind = kind_of(json.loads(stored.schema.metadata[b"reasonscope"])["signal"])
    pq.write_table(
        stored,
        content,
        compression="zstd",
        use_dictionary=list(AXES[kind]),
        write_statistics=False,
    )
    write_bytes(path, content.getvalue().to_pybytes())


def read(path: Path) -> "pa.Table":
    """A table that `write` wrote."""
    import pyarrow.parquet as pq

    return pq.read_table(path, use_threads=False, partitioning=None)


def is_whole(path: Path) -> bool:
    """Whether a table is there and can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return True
