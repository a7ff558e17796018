"""Rows of dots with whiskers: a few named cases side by side, their names readable."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import torch
from matplotlib.axes import Axes

from probes.measurement import Measurement
from probes.statistics import bootstrap_interval

from .curves import OKABE_ITO, lines_of, samples_of
from .glyphs import drawable
from .naming import new_axes, quantity, title

MARKERS = ("o", "s", "D", "^", "v", "P")
"""Of the series: told apart without colours too."""


def dots(
    measurement: Measurement,
    *,
    y: str,
    hue: str | None = None,
    band: str | None = "seed",
    ax: Axes | None = None,
    paper: Mapping[str, float] | None = None,
) -> Axes:
    """A row for every label of `y`, from the top; a dot in it for every label of `hue`.

    Args:
        measurement: Its axes must be `y`, `hue` and `band`; select or average others.
        y: The axis that becomes rows.
        hue: The axis that becomes series.
        band: The axis of repetitions.
        ax: Where to draw.
        paper: As for `dot_rows`.
    """
    series = {
        name or "": samples_of(part, y, band).tolist()
        for name, _, part in lines_of(measurement, hue)
    }
    rows = [str(label) for label in measurement.labels[y]]
    ax = dot_rows(rows, series, ax=ax, paper=paper)
    ax.set_title(title(measurement), fontsize=12)
    ax.set_xlabel(quantity(measurement), fontsize=11)
    if legend := ax.get_legend():
        legend.set_title(hue or "")
    return ax


def dot_rows(
    rows: Sequence[str],
    series: Mapping[str, Sequence[Sequence[float]]],
    *,
    ax: Axes | None = None,
    paper: Mapping[str, float | Sequence[float]] | None = None,
) -> Axes:
    """Named rows from the top, in each a dot for every series.

    The mean of a row's repetitions is the dot, their 95 % bootstrap interval the
    whisker, single values are faint; rows may have different numbers of repetitions.

    Args:
        rows: Their names.
        series: By name (none if empty), for every row its repetitions.
        ax: Where to draw.
        paper: What a paper prints for rows, once or several times, drawn as crosses.
    """
    ax = ax or new_axes(6.4, 0.3 * len(rows) * len(series) + 1.2)
    told = paper or {}
    known = [
        (value, row)
        for row, name in enumerate(rows)
        for value in _several(told.get(name, ()))
    ]
    slots = len(series) + bool(known)
    offsets = [0.7 * (slot - (slots - 1) / 2) / slots for slot in range(slots)]
    looks = zip(cycle(OKABE_ITO), cycle(MARKERS), strict=False)
    for (name, values), offset, (colour, marker) in zip(
        series.items(), offsets, looks, strict=False
    ):
        places = [row + offset for row in range(len(rows))]
        means = [sum(one) / len(one) for one in values]
        dot = ax.plot(means, places, marker, color=colour, markersize=6)[0]
        dot.set_label(drawable(name) or "_")
        for place, one in zip(places, values, strict=True):
            if len(one) > 1:
                ends = bootstrap_interval(torch.tensor(one, dtype=torch.double))
                ax.hlines(place, *ends, color=colour, linewidth=1.5)
                faint = ax.scatter(one, [place] * len(one), s=9, color=colour)
                faint.set(alpha=0.4, linewidth=0)
    if known:
        places = [row + offsets[-1] for _, row in known]
        cross = ax.plot([v for v, _ in known], places, "x", color="0.5", label="paper")
        cross[0].set(markersize=8, markeredgewidth=2)
    _finish_rows(ax, rows)
    if known or len(series) > 1:
        ax.legend(fontsize=9, frameon=False)
    return ax


def _several(told: float | Sequence[float]) -> Sequence[float]:
    return told if isinstance(told, Sequence) else (told,)


def _finish_rows(ax: Axes, rows: Sequence[str]) -> None:
    ax.set_yticks(range(len(rows)), [drawable(name) for name in rows], fontsize=10)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    for row in range(0, len(rows), 2):
        ax.axhspan(row - 0.5, row + 0.5, color="grey", alpha=0.08, linewidth=0)
    ax.tick_params("y", length=0)
    ax.grid(visible=True, axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
