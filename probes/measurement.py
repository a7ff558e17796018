"""What did a signal read, on which axes, and where did it come from?

A `Measurement` keeps a tensor together with the names and labels of its axes and with
its provenance, so that a number can be selected, averaged, stored and drawn without
knowing which model or backend produced it. It is falsified by its own labels: values
whose shape disagrees with the axes never become a Measurement.
"""

import html
import itertools
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

Label = str | int | float
"""What may name one place on an axis: a layer number, a token, a condition."""

SCHEMA = 1
_BROKEN = (
    *(SafetensorError, LookupError, ValueError, TypeError),
    *(AttributeError, RecursionError, OSError),
)
"""What reading a file that is none of ours can raise."""

MAX_ROWS, MAX_COLUMNS = 8, 10
MAX_PRINTED = 8
"""More values than this are left out when a Measurement is printed."""


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """A labelled tensor: values, axis names, axis labels, unit and provenance.

    Values are copied, detached and moved to the CPU, so that a Measurement neither
    keeps a graph or a large pattern alive nor changes when its source does.

    >>> m = Measurement(torch.tensor([[1.0, 3.0]]), ("layer", "head"), name="mass")
    >>> m.mean("head").values.tolist()
    [2.0]
    """

    values: Shaped[Tensor, "..."]
    axes: tuple[str, ...]
    """One name per dimension, from the glossary (`layer`, `head`, `query`, `seed`)."""
    labels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict)
    """Labels by axis; an axis without an entry is labelled 0, 1, 2, ..."""
    name: str = "value"
    """The quantity, as a noun: the title of a figure, the last column of a frame."""
    unit: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Anything JSON can hold: run, seed, model, step, site."""

    def __post_init__(self) -> None:
        values = self.values.detach().cpu().clone(memory_format=torch.contiguous_format)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "axes", tuple(self.axes))
        self._check_axes()
        object.__setattr__(self, "labels", self._complete_labels())
        object.__setattr__(self, "provenance", _json_copy(self.provenance))

    def _check_axes(self) -> None:
        if len(self.axes) != self.values.ndim:
            raise ValueError(
                f"{self.name!r} has {self.values.ndim} dimensions "
                f"(shape {tuple(self.values.shape)}) but {len(self.axes)} axis names: "
                f"{self.axes}"
            )
        if len(set(self.axes)) != len(self.axes):
            raise ValueError(f"axis names of {self.name!r} repeat: {self.axes}")
        if self.name in self.axes:
            raise ValueError(
                f"name {self.name!r} is also an axis; valid: none of {self.axes}"
            )
        unknown = [axis for axis in self.labels if axis not in self.axes]
        if unknown:
            raise ValueError(f"labels for unknown axes {unknown}; valid: {self.axes}")

    def _complete_labels(self) -> dict[str, tuple[Label, ...]]:
        sizes = zip(self.axes, self.values.shape, strict=True)
        labels = {axis: tuple(self.labels.get(axis, range(n))) for axis, n in sizes}
        for axis, n in zip(self.axes, self.values.shape, strict=True):
            if len(labels[axis]) != n:
                raise ValueError(
                    f"axis {axis!r} of {self.name!r} has size {n} but "
                    f"{len(labels[axis])} labels: {labels[axis]}"
                )
            wrong = [label for label in labels[axis] if not isinstance(label, Label)]
            if wrong:
                raise ValueError(
                    f"label {wrong[0]!r} of axis {axis!r} has type "
                    f"{type(wrong[0]).__name__}; "
                    "valid: str, int, float"
                )
        return labels

    def __repr__(self) -> str:
        sizes = zip(self.axes, self.values.shape, strict=True)
        shape = ", ".join(f"{axis}: {size}" for axis, size in sizes)
        unit = f" [{self.unit}]" if self.unit else ""
        text = f"Measurement({self.name!r}{unit}, {shape or 'scalar'})"
        if not 0 < self.values.numel() <= MAX_PRINTED:
            return text
        values = map(_cell, _as_plain(self.values).flatten().tolist())
        return f"{text}: {', '.join(values)}"

    def select(self, **selection: Label | Sequence[Label]) -> "Measurement":
        """The part at the given labels: one label drops the axis, a list keeps it.

        What a dropped axis was set to is kept under `selected` in the provenance.

        Args:
            **selection: A label, or a list of labels in the wanted order, by axis.

        Raises:
            ValueError: For an unknown axis or label, or a label that occurs twice.
        """
        values, axes, labels = self.values, list(self.axes), dict(self.labels)
        selected = dict(self.provenance.get("selected", {}))
        for axis, wanted in selection.items():
            self._check_axis(axis)
            dimension = axes.index(axis)
            if isinstance(wanted, Label):
                values = values.select(dimension, self._position(axis, wanted))
                axes.remove(axis)
                labels.pop(axis)
                selected[axis] = wanted
            else:
                positions = [self._position(axis, label) for label in wanted]
                index = torch.tensor(positions, dtype=torch.long)
                values = values.index_select(dimension, index)
                labels[axis] = tuple(wanted)
        changes = {"selected": selected} if selected else {}
        return self._with(values, axes, labels, changes)

    def mean(self, *axes: str) -> "Measurement":
        """The mean over the named axes (over all of them when none is named)."""
        over = axes or self.axes
        for axis in over:
            self._check_axis(axis)
        kept = [axis for axis in self.axes if axis not in over]
        dimensions = [self.axes.index(axis) for axis in over]
        real = _as_real(self.values)
        values = real.mean(dim=dimensions) if dimensions else real
        done = [*self.provenance.get("averaged", []), *over]
        labels = {axis: self.labels[axis] for axis in kept}
        return self._with(values, kept, labels, {"averaged": done} if done else {})

    def to_frame(self) -> "pd.DataFrame":
        """A tidy pandas frame: one row per value; columns are the axes, then it."""
        import pandas as pd

        rows = itertools.product(*(self.labels[axis] for axis in self.axes))
        columns = [*self.axes, self.name]
        values = _as_plain(self.values).flatten().tolist()
        data = [(*row, value) for row, value in zip(rows, values, strict=True)]
        return pd.DataFrame(data, columns=columns)

    def top(self, n: int = 5) -> "pd.DataFrame":
        """The `n` largest values and where they are, as rows of `to_frame`.

        >>> m = Measurement(torch.tensor([[1.0, 3.0]]), ("layer", "head"), name="mass")
        >>> m.top(1).values.tolist()
        [[0.0, 1.0, 3.0]]
        """
        return self.to_frame().nlargest(n, self.name)

    def to_xarray(self) -> "xr.DataArray":
        """An xarray DataArray; unit and provenance are its attributes."""
        import xarray as xr

        return xr.DataArray(
            _as_plain(self.values).numpy(),
            coords={axis: list(self.labels[axis]) for axis in self.axes},
            dims=self.axes,
            name=self.name,
            attrs={"units": self.unit, **self.provenance},
        )

    def plot(self) -> "Figure":
        """The figure that its axes ask for: see `figures.plot`."""
        from .figures import plot

        return plot(self)

    def save(self, path: str | Path) -> Path:
        """Write values (safetensors) and the rest (JSON metadata) to one file.

        Args:
            path: The file to write, atomically; missing folders are made.
        """
        path = Path(path)
        header = {
            "schema": SCHEMA,
            "axes": self.axes,
            "labels": self.labels,
            "name": self.name,
            "unit": self.unit,
            "provenance": self.provenance,
        }
        content = to_safetensors(
            {"values": self.values}, metadata={"measurement": json.dumps(header)}
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, content)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Measurement":
        """Read a Measurement that `save` wrote.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is truncated or holds something else.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no measurement at {path}")
        try:
            with safe_open(path, framework="pt") as stored:
                header = json.loads((stored.metadata() or {})["measurement"])
                values = stored.get_tensor("values")
            if header.pop("schema", None) != SCHEMA:
                raise ValueError(f"unknown schema; valid: {SCHEMA}")
            header["axes"] = tuple(header["axes"])
            header["labels"] = {a: tuple(n) for a, n in header["labels"].items()}
            return cls(values, **header)
        except _BROKEN as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{path} is not a stored Measurement (truncated or foreign): {reason}"
            ) from error

    def _repr_html_(self) -> str:
        """A small table (first slice of the last two axes) and a provenance line."""
        leading = {axis: self.labels[axis][:1] for axis in self.axes[:-2]}
        note = "".join(f", {axis} = {at[0]}" for axis, at in leading.items() if at)
        shape = " × ".join(f"{axis} {len(self.labels[axis])}" for axis in self.axes)
        unit = f" [{self.unit}]" if self.unit else ""
        title = f"<b>{html.escape(self.name + unit)}</b> {html.escape(shape + note)}"
        origin = ", ".join(f"{key}: {value}" for key, value in self.provenance.items())
        small = f"<small style='opacity:.7'>{html.escape(origin) or 'no provenance'}"
        table = _html_table(self) if self.values.numel() else "<p>empty</p>"
        return f"<div>{title}{table}{small}</small></div>"

    def _check_axis(self, axis: str) -> None:
        if axis not in self.axes:
            raise ValueError(f"{self.name!r} has no axis {axis!r}; valid: {self.axes}")

    def _position(self, axis: str, label: Label) -> int:
        labels = self.labels[axis]
        if labels.count(label) == 1:
            return labels.index(label)
        if label in labels:
            raise ValueError(f"label {label!r} occurs more than once on axis {axis!r}")
        raise ValueError(f"axis {axis!r} has no label {label!r}; valid: {labels}")

    def _with(
        self,
        values: Tensor,
        axes: Sequence[str],
        labels: Mapping[str, tuple[Label, ...]],
        changes: Mapping[str, Any],
    ) -> "Measurement":
        provenance = {**self.provenance, **changes}
        return Measurement(
            values, tuple(axes), labels, self.name, self.unit, provenance
        )


def _as_real(values: Tensor) -> Tensor:
    """Counts and flags as float64, half precisions as float32: what a mean needs."""
    if not values.is_floating_point():
        return values.double()
    return values.float() if values.element_size() < 4 else values


def _as_plain(values: Tensor) -> Tensor:
    """Half precisions widened; counts and flags as they are."""
    return _as_real(values) if values.is_floating_point() else values


def _json_copy(provenance: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(json.loads(json.dumps(dict(provenance))))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"provenance must hold only what JSON can: {error}; got {provenance!r}"
        ) from error


def _write_atomically(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _html_table(measurement: Measurement) -> str:
    values = measurement.values
    for _ in measurement.axes[:-2]:
        values = values[0]
    names = ("", "", *measurement.axes)[-2:]
    rows, columns = (measurement.labels.get(name, ("",)) for name in names)
    grid = _as_plain(values).reshape(len(rows), len(columns)).tolist()
    more = "<td>…</td>" if len(columns) > MAX_COLUMNS else ""
    head = "".join(f"<th>{html.escape(str(c))}</th>" for c in columns[:MAX_COLUMNS])
    corner = html.escape(" \\ ".join(name for name in names if name))
    lines = [f"<tr><th>{corner}</th>{head}{more}</tr>"]
    for label, row in zip(rows[:MAX_ROWS], grid, strict=False):
        cells = "".join(f"<td>{_cell(value)}</td>" for value in row[:MAX_COLUMNS])
        lines.append(f"<tr><th>{html.escape(str(label))}</th>{cells}{more}</tr>")
    if len(rows) > MAX_ROWS:
        lines.append(f"<tr><td>… {len(rows) - MAX_ROWS} more</td></tr>")
    return f"<table>{''.join(lines)}</table>"


def _cell(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else str(value)
