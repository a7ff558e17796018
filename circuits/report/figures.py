"""A study's figures for the page: as SVG, with a caption and with their numbers."""

import csv
import inspect
import io
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from circuits.claims import NotTested
from circuits.lab import Lab, LanguageLab
from circuits.progress import each
from probes.figures.finish import SVG, fit_titles, inked
from trained.config import as_dict
from trained.errors import BadInput

LARGEST = 400_000
"""Bytes of an SVG; a larger one has so many marks that they are drawn as an image."""

WIDE = 9.0
"""Inches; wider figures take a whole row of the page."""

SIZES = 4
"""Sizes of the configuration that a caption names."""

INK, GROUND = "#1c1f23", "#fefefe"
"""Of the page's figures: the page's own, and white that nothing in a figure is."""

PAGE: Any = inked(INK, GROUND)

DARK = f"""<style>@media (prefers-color-scheme: dark) {{
[style*="fill: {INK}"] {{ fill: #e8eaec !important }}
[style*="stroke: {INK}"] {{ stroke: #e8eaec !important }}
[style*="fill: {GROUND}"] {{ fill: #1c2024 !important }}
}}</style>
"""
"""Ink and ground in the dark, which an image takes from the page that shows it."""

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
    wide: bool = False
    """Whether half of the page would be too narrow to read it."""

    @property
    def uri(self) -> str:
        """As an image, in which nothing can run and whose names clash with nothing."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


def draw_all(lab: Lab | LanguageLab) -> Iterator[Drawn]:
    """Every figure that what is stored suffices for."""
    return draw_kinds(lab, tuple(lab.figures))


def draw_kinds(lab: Lab | LanguageLab, kinds: Sequence[str]) -> Iterator[Drawn]:
    """Those of some kinds."""
    for kind in each(f"{lab.study.slug}: drawing", kinds, str):
        draw = lab.figures[kind]
        try:
            with rc_context(PAGE):
                figure = draw(lab)
        except (BadInput, NotTested):
            continue
        yield drawn(kind, figure, about(draw) or kind, made(lab, kind, figure))


def about(draw: Callable[[Any], Figure]) -> str:
    """What a figure shows and what the paper says of it, as its function says."""
    return " ".join((inspect.getdoc(draw) or "").split())


def drawn(kind: str, figure: Figure, about: str, origin: str = "") -> Drawn:
    """A figure as SVG, with its numbers."""
    if not fit_titles(figure):
        # It is laid out, and saving it would do that again.
        figure.set_layout_engine("none")
    wide = bool(figure.get_figwidth() > WIDE)
    return Drawn(kind, about, origin, as_svg(figure), as_csv(figure), wide)


def made(lab: Lab | LanguageLab, kind: str, figure: Figure) -> str:
    """What a caption says of the run or model: preset, seeds and sizes.

    A figure that is made from something else says so in its label.
    """
    if own := str(figure.get_label()):
        return own
    if isinstance(lab, LanguageLab):
        return lab.origin
    config = dict(_flat(as_dict(lab.config)))
    numbers = [name for name, value in config.items() if type(value) in (int, float)]
    usual = lab.study.sizes or [name for name in numbers if "." not in name][:SIZES]
    shown = lab.study.figure_sizes.get(kind, usual)
    seeds = ", ".join(map(str, lab.seeds))
    parts = [f"preset {lab.run.manifest['preset']}", f"seeds {seeds}"]
    return "; ".join((*parts, *(f"{name} {_size(config[name])}" for name in shown)))


def _size(value: Any) -> str:
    several = value if isinstance(value, list | tuple) else [value]
    return ", ".join(f"{one:g}" for one in several)


def _flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys as `--set` takes them, and their values."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


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
    with rc_context({**PAGE, **SVG}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue().replace("<defs>", f"{DARK}<defs>", 1)


def as_csv(figure: Figure) -> str:
    """What the axes show: a line for each point, bar and cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("panel", "series", "x", "y", "value"))
    for place, axes in enumerate(figure.axes):
        # A colour bar repeats what its panel has.
        if axes.get_label() == "<colorbar>":
            continue
        panel = " ".join(axes.get_title().split()) or str(place)
        for series, x, y, value in (*_lines(axes), *_bars(axes), *_grids(axes)):
            writer.writerow((panel, series, *map(_short, (x, y, value))))
    return file.getvalue()


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _lines(axes: Axes) -> Iterator[tuple[str, Any, Any, Any]]:
    rows = _rows(axes)
    for line in axes.lines:
        points = np.column_stack(line.get_data()).tolist()
        if line.get_transform() != axes.transData:
            # Across the whole panel: a level if it has a name, else decoration.
            yield from _level(_name(line), points)
            continue
        for x, y in points:
            yield _name(line), x, _row(rows, y), ""
    for collection in axes.collections:
        if isinstance(collection, PathCollection):
            for x, y in np.asarray(collection.get_offsets()).tolist():
                yield _name(collection), x, _row(rows, y), ""


def _level(name: str, points: list[Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    (x, y), (other, _) = points
    if name:
        yield (name, x, "", "") if x == other else (name, "", y, "")


def _row(rows: Mapping[int, str], y: Any) -> Any:
    return rows.get(round(y), y) if rows else y


def _rows(axes: Axes) -> dict[int, str]:
    """The names of rows of dots; none where the axis has numbers."""
    named, places = axes.yaxis.get_major_formatter(), axes.get_yticks().tolist()
    if not isinstance(named, FuncFormatter):
        return {}
    # Not the labels: panels side by side show them once.
    texts = {int(place): named(place) for place in places if place == int(place)}
    return {place: " ".join(str(text).split()) for place, text in texts.items()}


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
    texts = ((place, " ".join(label.get_text().split())) for place, label in named)
    return {int(place): text for place, text in texts if text and place == int(place)}


def _name(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else label
