"""How does a Measurement look? One function per kind of figure, and `save`.

Every function draws on the Axes it is given, or on those of a new `Figure`, and returns
the Axes. No pyplot and no global settings: drawing works headless and leaves other
figures alone. In a notebook (`%matplotlib inline`) show the returned `.figure`.
"""

import math
import tempfile
from dataclasses import replace
from itertools import islice, product
from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from probes.measurement import Measurement

from .curves import OKABE_ITO as OKABE_ITO
from .curves import bars as bars
from .curves import curve as curve
from .curves import polar as polar
from .dots import dot_rows as dot_rows
from .dots import dots as dots
from .finish import STYLES as STYLES
from .finish import SVG, add_foot, fit_titles, scale_text
from .finish import shared_legend as shared_legend
from .finish import styled as styled
from .grids import attention_rows as attention_rows
from .grids import colour_bar
from .grids import heatmap as heatmap
from .grids import limits_of as limits_of
from .grids import text_heatmap as text_heatmap
from .naming import title

FORMATS = ("png", "svg", "pdf")

SAMPLES = ("seed", "example")
"""Axes whose labels are repetitions: `plot` draws their mean and its interval."""

PANELS_ACROSS, MAX_PANELS = 3, 12


def plot(measurement: Measurement) -> Figure:
    """The figure that a Measurement's axes ask for.

    One axis is a line, two are a heat map, more are a panel for every place on the
    leading ones (the first `MAX_PANELS`); patterns (`query`, `key`) are such panels. An
    axis of repetitions (`seed`, `example`) becomes a band around the mean, with a line
    for each of a few places on a second axis. Of statistics the mean is drawn.
    """
    measurement = _mean_statistic(measurement)
    if not measurement.axes or not measurement.values.numel():
        raise ValueError(f"{measurement!r} has no axis to draw over")
    samples = [axis for axis in SAMPLES if axis in measurement.axes]
    if measurement.axes[-2:] == ("query", "key") or len(measurement.axes) == 1:
        samples = []
    elif len(samples) > 1:
        measurement = measurement.mean(*samples[1:])
    if not samples:
        return _panels(measurement)
    others = [axis for axis in measurement.axes if axis != samples[0]]
    *lines, across = others
    hue = lines[0] if lines else None
    if len(lines) > 1 or (hue and len(measurement.labels[hue]) > len(OKABE_ITO)):
        return _panels(measurement.mean(samples[0]))
    return _figure_of(curve(measurement, x=across, hue=hue, band=samples[0]))


def _mean_statistic(measurement: Measurement) -> Measurement:
    """What `measure` gives, without its standard errors."""
    if "mean" in measurement.labels.get("statistic", ()):
        return measurement.select(statistic="mean")
    return measurement


def _panels(measurement: Measurement) -> Figure:
    """A line, a heat map, or a heat map for each place on the leading axes."""
    is_pattern = measurement.axes[-2:] == ("query", "key")
    if is_pattern:
        measurement = _without_future(measurement)
    if len(measurement.axes) == 1:
        return _figure_of(curve(measurement, x=measurement.axes[0], band=None))
    if len(measurement.axes) == 2:
        return _figure_of(heatmap(measurement))
    leading = measurement.axes[:-2]
    places = product(*(measurement.labels[axis] for axis in leading))
    shown = list(islice(places, MAX_PANELS))
    across = min(len(shown), PANELS_ACROSS)
    rows = -(-len(shown) // across)
    figure = Figure((4.2 * across, 3.7 * rows), layout="constrained")
    axes = figure.subplots(rows, across, squeeze=False).flatten()
    low, high = limits_of(measurement.values)
    limits = (min(low, 0.0) if is_pattern else low, high)
    for ax, place in zip(axes, shown, strict=False):
        part = measurement.select(**dict(zip(leading, place, strict=True)))
        heatmap(part, ax, limits=limits, bar=False)
        ax.tick_params(labelsize=8)
        ax.set_title(title(part), fontsize=10)
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    colour_bar(axes.tolist(), measurement)
    return figure


def _without_future(pattern: Measurement) -> Measurement:
    """Attention whose cells after the query, which cannot be seen, stay blank."""
    values = pattern.values.double()
    future = torch.ones(values.shape[-2:], dtype=torch.bool).triu(1)
    if values.shape[-2] != values.shape[-1] or values[..., future].any():
        return pattern
    return replace(pattern, values=values.masked_fill(future, math.nan))


def _figure_of(ax: Axes) -> Figure:
    whole = ax.figure
    if not isinstance(whole, Figure):
        raise ValueError("axes of a subfigure cannot be taken alone; give the figure")
    return whole


def save(
    figure: Figure | Axes, path: str | Path, *, dpi: int = 150, foot: str = ""
) -> Path:
    """Write a figure as png, svg or pdf, atomically and without a time stamp.

    Args:
        figure: The figure, or axes of it.
        path: Where to; the extension decides the format, missing folders are made.
        dpi: Dots per inch of a png.
        foot: What it was made from, in small letters below the panels.

    Raises:
        ValueError: If the extension is not one of png, svg, pdf.
    """
    path = Path(path)
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise ValueError(f"cannot draw {path.name!r}; valid: {', '.join(FORMATS)}")
    whole = figure if isinstance(figure, Figure) else _figure_of(figure)
    stamp = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}[kind]
    title = next((ax.get_title() for ax in whole.axes if ax.get_title()), "")
    path.parent.mkdir(parents=True, exist_ok=True)
    add_foot(whole, foot)
    scale_text(whole)
    fit_titles(whole)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".figure") as folder:
        draft = Path(folder) / path.name
        with rc_context(SVG):
            whole.savefig(draft, dpi=dpi, metadata={"Title": title, stamp: None})
        draft.replace(path)
    return path
