"""The last touch on a figure: a style, one legend, titles that fit, what made it."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from .glyphs import drawable


def inked(ink: str, ground: str) -> dict[str, Any]:
    """Settings of matplotlib that draw in one colour on another."""
    grounds = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    inks = (
        *("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color"),
        *("ytick.color", "legend.edgecolor", "patch.edgecolor"),
    )
    return {
        **dict.fromkeys((*grounds, "legend.facecolor"), ground),
        **dict.fromkeys(inks, ink),
    }


STYLES: dict[str, dict[str, Any]] = {
    "paper": {},
    "slides": {
        "lines.linewidth": 2.5,
        "lines.markersize": 8.0,
        "axes.linewidth": 1.4,
        "savefig.dpi": 200.0,
    },
    "dark": {**inked("#e8e8e8", "#16181d"), "grid.color": "#3a3f4a"},
}
"""Style -> settings of matplotlib. `paper` is the default look."""

SVG: Any = {
    "svg.hashsalt": "reasonscope",
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans"],
}
"""Settings of a saved SVG: the same each time, its text as text, which names the font
that was measured instead of matplotlib's twelve (half of a small figure's size)."""

TEXT_SCALE = {"slides": 1.35}
"""Style -> how much larger letters are; figures grow by a third of that."""

_scale: ContextVar[float] = ContextVar("text scale", default=1.0)

FEWEST_LETTERS = 16
"""No line of a title is broken further."""

SMALLEST_POINTS = 6
"""No name at a tick becomes smaller to make room for the next."""

MOST_LAYOUTS = 4
"""How often a figure is laid out to fit its titles, if it does not come to rest."""

WHOLE_TITLE = 0.92
"""Share of a figure's width that the title over all panels may take."""

GAP = 5
"""Pixels between two names at ticks."""

FOOT_INCHES = 0.18
"""Height of the line at the foot."""

LEGEND_POINTS = 9
"""Font size of the legend that panels share."""


@contextmanager
def styled(style: str) -> Iterator[None]:
    """Draw and save in a style; `ValueError` for an unknown one."""
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; valid: {', '.join(STYLES)}")
    # matplotlib lists the keys it knows as a type of its own.
    settings: Any = STYLES[style]
    before = _scale.set(TEXT_SCALE.get(style, 1.0))
    try:
        with rc_context(settings):
            yield
    finally:
        _scale.reset(before)


def scale_text(figure: Figure) -> None:
    """Make the letters as large as the style wants them."""
    factor = _scale.get()
    if factor == 1:
        return
    ticks = {
        axis: axis.get_ticklabels()
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
    }
    theirs = {id(label) for labels in ticks.values() for label in labels}
    for axis, labels in ticks.items():
        size = labels[0].get_fontsize() if labels else 10
        axis.set_tick_params(labelsize=float(size) * factor)
    for text in figure.findobj(Text):
        if isinstance(text, Text) and id(text) not in theirs:
            text.set_fontsize(float(text.get_fontsize()) * factor)
    figure.set_size_inches(*(figure.get_size_inches() * (1 + (factor - 1) / 3)))


def fit_titles(figure: Figure) -> bool:
    """Break titles and the names of axes that reach over the edge or the next panel.

    Names at ticks that run into each other become smaller instead.

    Returns:
        Whether something was changed last, so that the figure has to be laid out anew.
    """
    texts = _whole_title(figure)
    for ax in figure.axes:
        texts += (ax.title, ax.xaxis.label, ax.yaxis.label)
    given = {text: text.get_text() for text in texts}
    # Again: a name of two lines moves its panel, and the title above it.
    for _ in range(MOST_LAYOUTS):
        figure.draw_without_rendering()
        before = [text.get_text() for text in given]
        for text, whole in given.items():
            text.set_text(whole)
        smaller = _fit(figure)
        if not smaller and before == [text.get_text() for text in given]:
            return False
    return True


def _fit(figure: Figure) -> bool:
    """Whether names at ticks became smaller; what was broken is seen."""
    smaller = False
    for text in _whole_title(figure):
        room = WHOLE_TITLE * figure.bbox.width
        _break(text, lambda own: own.get_window_extent().width, room)
    for ax in figure.axes:
        smaller |= _separate(ax)
        for text in (ax.title, ax.xaxis.label):
            _break(text, lambda own: own.get_window_extent().width, _room(figure, ax))
        tall = float(ax.get_window_extent().height) * 1.1
        _break(ax.yaxis.label, lambda own: own.get_window_extent().height, tall)
    return smaller


def _whole_title(figure: Figure) -> list[Text]:
    """The title over all panels, where there is one."""
    words = figure.get_suptitle()
    return [text for text in figure.texts if words and text.get_text() == words]


def _break(text: Text, length: Callable[[Text], float], room: float) -> None:
    """Break a text into lines until it is short enough; never inside a formula."""
    whole = text.get_text()
    letters = max((len(line) for line in whole.splitlines()), default=0)
    while length(text) > room and "$" not in whole:
        letters -= 4
        if letters < FEWEST_LETTERS:
            break
        lines = (textwrap.fill(line, letters) for line in whole.splitlines())
        # Not `set_title`, which would take back the size of the letters.
        text.set_text("\n".join(lines))


def _separate(ax: Axes) -> bool:
    """Make the names at the ticks below a panel smaller until none touches the next."""
    panel = ax.get_window_extent()
    shown = [
        label
        for label in ax.get_xticklabels()
        # Ticks beyond the panel are not drawn; slanted names do not touch.
        if label.get_text() and not label.get_rotation()
        if panel.x0 - 1 <= sum(label.get_window_extent().intervalx) / 2 <= panel.x1 + 1
    ]
    changed = False
    while shown and _touching(shown):
        smaller = 0.95 * float(shown[0].get_fontsize())
        if smaller < SMALLEST_POINTS:
            break
        ax.xaxis.set_tick_params(labelsize=smaller)
        changed = True
    return changed


def _touching(labels: Sequence[Text]) -> bool:
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda b: b.x0)
    return any(left.x1 + GAP > right.x0 for left, right in pairwise(boxes))


def _room(figure: Figure, ax: Axes) -> float:
    """Pixels for a title over the middle of its panel: up to half the gaps beside."""
    box = ax.get_window_extent()
    middle, left, right = (box.x0 + box.x1) / 2, 0.0, float(figure.bbox.width)
    for other in figure.axes:
        beside = other.get_window_extent()
        if not other.get_title() or beside.y1 <= box.y0 or box.y1 <= beside.y0:
            continue
        if beside.x1 <= box.x0:
            left = max(left, (beside.x1 + box.x0) / 2)
        elif box.x1 <= beside.x0:
            right = min(right, (box.x1 + beside.x0) / 2)
    return 1.92 * min(middle - left, right - middle)


def shared_legend(figure: Figure, title: str | None = None, *, ncols: int = 4) -> None:
    """One legend below all panels, which show the same series."""
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            entries.setdefault(label, handle)
        if own := ax.get_legend():
            own.remove()
    figure.legend(
        list(entries.values()),
        list(entries),
        title=title,
        loc="outside lower center",
        ncols=ncols,
        fontsize=LEGEND_POINTS,
        frameon=False,
    )


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
    for legend in figure.legends:
        # In units of its font size; an anchor would end the room that is kept for it.
        legend.borderaxespad += 72 * FOOT_INCHES / LEGEND_POINTS
    line = figure.text(0.995, 0.2 * height, drawable(text), ha="right", va="bottom")
    line.set(size=6, alpha=0.6, parse_math=False)
