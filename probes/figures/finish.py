"""The last touch on a figure: a style, titles that fit, a line of what made it."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

_LIGHT, _DARK = "#e8e8e8", "#16181d"

STYLES: dict[str, dict[str, Any]] = {
    "paper": {},
    "slides": {
        "font.size": 14.0,
        "lines.linewidth": 2.5,
        "lines.markersize": 8.0,
        "axes.linewidth": 1.4,
        "savefig.dpi": 200.0,
    },
    "dark": {
        "figure.facecolor": _DARK,
        "axes.facecolor": _DARK,
        "savefig.facecolor": _DARK,
        "legend.facecolor": _DARK,
        **dict.fromkeys(
            (
                *("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color"),
                *("ytick.color", "legend.edgecolor", "patch.edgecolor"),
            ),
            _LIGHT,
        ),
        "grid.color": "#3a3f4a",
    },
}
"""Style -> settings of matplotlib. `paper` is the default look."""

FEWEST_LETTERS = 16
"""No line of a title is broken further."""

FOOT_INCHES = 0.18
"""Height of the line at the foot."""


@contextmanager
def styled(style: str) -> Iterator[None]:
    """Draw and save in a style; `ValueError` for an unknown one."""
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; valid: {', '.join(STYLES)}")
    # matplotlib lists the keys it knows as a type of its own.
    settings: Any = STYLES[style]
    with rc_context(settings):
        yield


def fit_titles(figure: Figure) -> None:
    """Break titles that reach beyond the figure's edge or over the next panel."""
    if not any(ax.get_title() for ax in figure.axes):
        return
    figure.draw_without_rendering()
    for ax in figure.axes:
        room, whole = _room(figure, ax), ax.get_title()
        letters = max((len(line) for line in whole.splitlines()), default=0)
        while ax.title.get_window_extent().width > room and "$" not in whole:
            letters -= 4
            if letters < FEWEST_LETTERS:
                break
            lines = (textwrap.fill(line, letters) for line in whole.splitlines())
            ax.set_title("\n".join(lines))


def _room(figure: Figure, ax: Axes) -> float:
    """Pixels that a title may take: its own panel, and the gap to the next."""
    box = ax.get_window_extent()
    beside = [
        other.get_window_extent()
        for other in figure.axes
        if other is not ax and other.get_title()
    ]
    alone = all(abs(other.x0 - box.x0) < 1 for other in beside)
    if alone:
        middle = (box.x0 + box.x1) / 2
        return 1.94 * min(middle, float(figure.bbox.width) - middle)
    return float(box.width) * 1.12


def add_foot(figure: Figure, text: str) -> None:
    """Say below the panels what the figure was made from."""
    if not text:
        return
    height = FOOT_INCHES / figure.get_figheight()
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0.0, height, 1.0, 1.0 - height))
    else:
        figure.subplots_adjust(bottom=figure.subplotpars.bottom + height)
    figure.text(0.995, 0.2 * height, text, ha="right", va="bottom", size=6, alpha=0.6)
