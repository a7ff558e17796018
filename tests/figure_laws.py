"""What holds of every figure, whatever it shows."""

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 2.0
"""Pixels: letters may touch the edge."""


def cut_texts(figure: Figure) -> list[str]:
    """Texts of a saved figure, but numbers at ticks, that reach beyond its page."""
    figure.draw_without_rendering()
    page = figure.bbox.padded(SLACK)
    ticks = {
        id(label)
        for ax in figure.axes
        for label in (
            *ax.get_xticklabels(which="both"),
            *ax.get_yticklabels(which="both"),
        )
    }
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [
        text.get_text()
        for text in texts
        if text.get_text().strip() and text.get_visible() and id(text) not in ticks
        if not _within(page, text.get_window_extent())
    ]


def _within(page: Bbox, box: Bbox) -> bool:
    across = page.x0 <= box.x0 and box.x1 <= page.x1
    return across and page.y0 <= box.y0 and box.y1 <= page.y1
