"""A study's figures for the page: as SVG, with a caption and with their numbers."""

import csv
import inspect
import io
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from circuits.claims import NotTested
from circuits.lab import Lab
from trained.config import as_dict
from trained.errors import BadInput

LARGEST = 400_000
"""Bytes of an SVG; a larger one has so many marks that they are drawn as an image."""

SIZES = 4
"""Sizes of the configuration that a caption names."""

Row = tuple[str, str, Any, Any, Any]
"""Panel, series, x, y and value."""


@dataclass(frozen=True)
class Drawn:
    """One figure, ready to be shown."""

    kind: str
    title: str
    """What is shown, with the paper's figure number where it has one."""
    made: str
    """Preset, seeds and sizes."""
    svg: str
    numbers: str
    """What the axes show, as CSV."""

    @property
    def uri(self) -> str:
        """As an image, in which nothing can run and whose names clash with nothing."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


def draw_all(lab: Lab) -> Iterator[Drawn]:
    """Every figure that the run has the models for."""
    for kind, draw in lab.study.figures.items():
        try:
            figure = draw(lab)
        except (BadInput, NotTested):
            continue
        yield drawn(kind, figure, about(draw) or kind, made(lab))


def about(draw: Callable[[Any], Figure]) -> str:
    """What a figure shows, as its function says."""
    return (inspect.getdoc(draw) or "").split("\n\n")[0].replace("\n", " ")


def drawn(kind: str, figure: Figure, about: str, origin: str = "") -> Drawn:
    """A figure as SVG, with its numbers."""
    return Drawn(kind, about, origin, as_svg(figure), as_csv(figure))


def made(lab: Lab) -> str:
    """What a caption says of the run: preset, seeds and the first sizes."""
    sizes = [
        f"{name} {value:g}"
        for name, value in as_dict(lab.config).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    seeds = ", ".join(map(str, lab.seeds))
    parts = [f"preset {lab.run.manifest['preset']}", f"seeds {seeds}", *sizes[:SIZES]]
    return "; ".join(parts)


def as_svg(figure: Figure) -> str:
    """With text as text, without a time stamp; of a crowded one, marks as an image."""
    text = _svg(figure)
    if len(text) > LARGEST:
        for axes in figure.axes:
            for artist in (*axes.lines, *axes.collections, *axes.patches):
                artist.set_rasterized(True)
        text = _svg(figure)
    return text


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    with rc_context({"svg.hashsalt": "reasonscope", "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def as_csv(figure: Figure) -> str:
    """What the axes show: a line for each point, bar and cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("panel", "series", "x", "y", "value"))
    for place, axes in enumerate(figure.axes):
        # A colour bar repeats what its panel has.
        if axes.get_label() == "<colorbar>":
            continue
        panel = axes.get_title() or str(place)
        for series, x, y, value in (*_lines(axes), *_bars(axes), *_grids(axes)):
            writer.writerow((panel, series, *map(_short, (x, y, value))))
    return file.getvalue()


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _lines(axes: Axes) -> Iterator[tuple[str, Any, Any, Any]]:
    for line in axes.lines:
        for x, y in np.column_stack(line.get_data()).tolist():
            yield _name(line), x, y, ""
    for points in axes.collections:
        if isinstance(points, PathCollection):
            for x, y in np.asarray(points.get_offsets()).tolist():
                yield _name(points), x, y, ""


def _bars(axes: Axes) -> Iterator[tuple[str, Any, Any, Any]]:
    ticks = _ticks(axes.get_xticks().tolist(), axes.get_xticklabels())
    for group in axes.containers:
        for bar in getattr(group, "patches", ()):
            middle = bar.get_x() + bar.get_width() / 2
            name = ticks.get(round(middle), middle)
            yield _name(group), name, float(bar.get_height()), ""


def _grids(axes: Axes) -> Iterator[tuple[str, Any, Any, Any]]:
    across = _ticks(axes.get_xticks().tolist(), axes.get_xticklabels())
    down = _ticks(axes.get_yticks().tolist(), axes.get_yticklabels())
    for image in axes.images:
        cells = image.get_array()
        for y, row in enumerate([] if cells is None else cells.tolist()):
            for x, value in enumerate(row):
                yield "", across.get(x, x), down.get(y, y), value


def _ticks(places: Sequence[Any], labels: Sequence[Any]) -> dict[int, str]:
    """What stands at whole places of an axis whose places have names."""
    named = zip(places, labels, strict=False)
    return {int(p): t.get_text() for p, t in named if t.get_text() and p == int(p)}


def _name(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else label
