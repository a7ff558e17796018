"""Figures of two axes as cells: heat maps, attention rows, the tokens of a lens."""

import math
from collections.abc import Sequence

from jaxtyping import Float64
from matplotlib.axes import Axes
from torch import Tensor

from probes.measurement import Measurement

from .glyphs import drawable
from .naming import lean_names, new_axes, quantity, title

MAX_TICKS = 24

CELL_LETTERS = 10
"""Longer texts in the cells of a heat map are cut."""


def limits_of(values: Tensor) -> tuple[float, float]:
    """Where colours begin and end: symmetric about zero if both signs occur."""
    known = values.double()[values.isfinite()]
    low, high = (float(x) for x in known.aminmax()) if known.numel() else (0.0, 1.0)
    most = max(abs(low), abs(high))
    return (-most, most) if low < 0 else (low, high)


def heatmap(
    measurement: Measurement,
    ax: Axes | None = None,
    *,
    limits: tuple[float, float] | None = None,
    bar: bool = True,
) -> Axes:
    """A heat map of two axes: the first down, the second across, with a colour bar.

    Cividis, or a diverging map centred on zero if values of both signs occur; what is
    not a number stays blank, and the colour bar ends in a point where values go on.

    Args:
        measurement: What is drawn.
        ax: Where to draw.
        limits: Where colours begin and end, to share them with others; None: its own.
        bar: Whether it has a colour bar; panels may share one.
    """
    grid = _grid(measurement, n_axes=(2,))
    ax = ax or new_axes(grid.shape[1] * 0.35 + 2, grid.shape[0] * 0.35 + 1.4)
    low, top = limits or limits_of(grid)
    colours = "PuOr_r" if low < 0 else "cividis"
    ax.imshow(grid.numpy(), aspect="auto", cmap=colours, vmin=low, vmax=top)
    _finish_grid(ax, measurement)
    if bar:
        colour_bar([ax], measurement)
    return ax


def attention_rows(
    measurement: Measurement, ax: Axes | None = None, *, top: float | None = None
) -> Axes:
    """Attention rows with the weight written in every cell; keys across.

    Takes one row (`key`) or several (any axis, then `key`). Colours start at 0; a key
    that a row cannot attend to is not-a-number and stays blank.

    Args:
        measurement: What is drawn.
        ax: Where to draw.
        top: Where colours end, to share them with others; None: at the largest weight.
    """
    grid = _grid(measurement, n_axes=(1, 2))
    ax = ax or new_axes(grid.shape[1] * 0.62 + 2, grid.shape[0] * 0.5 + 1.5)
    top = top or max(float(grid.nan_to_num().max()), 1e-12)
    ax.imshow(grid.numpy(), aspect="auto", cmap="cividis", vmin=0, vmax=top)
    for row, weights in enumerate(grid.tolist()):
        for column, weight in enumerate(weights):
            if math.isnan(weight):
                continue
            colour = "white" if weight < 0.55 * top else "black"
            text = ax.text(column, row, f"{weight:.2f}", color=colour, fontsize=9)
            text.set(ha="center", va="center")
    _finish_grid(ax, measurement)
    colour_bar([ax], measurement)
    return ax


def text_heatmap(
    measurement: Measurement,
    texts: Sequence[Sequence[str]],
    ax: Axes | None = None,
) -> Axes:
    """A heat map of two axes with a text in every cell: the tokens of a logit lens.

    Args:
        measurement: First axis down, second across; colours start at 0 or below, and
            a cell that is not a number stays blank.
        texts: The text of each cell, shortened to `CELL_LETTERS`.
        ax: Where to draw.
    """
    grid = _grid(measurement, n_axes=(2,))
    if [len(row) for row in texts] != [grid.shape[1]] * grid.shape[0]:
        raise ValueError(f"texts do not fill the grid {tuple(grid.shape)}")
    size = grid.shape[1] * 0.78 + 2, grid.shape[0] * 0.24 + 1.6
    ax = ax or new_axes(*size)
    known = grid.nan_to_num(0.0)
    low, top = min(float(known.min()), 0.0), max(float(known.max()), 1e-12)
    ax.imshow(grid.numpy(), aspect="auto", cmap="cividis", vmin=low, vmax=top)
    for row, values in enumerate(grid.tolist()):
        for column, value in enumerate(values):
            colour = "white" if value < low + 0.55 * (top - low) else "black"
            shown = _shortened(texts[row][column])
            text = ax.text(column, row, shown, color=colour, fontsize=7)
            text.set(ha="center", va="center", parse_math=False)
    _finish_grid(ax, measurement)
    colour_bar([ax], measurement)
    return ax


def _shortened(text: str) -> str:
    shown = drawable(text)
    return shown if len(shown) <= CELL_LETTERS else shown[: CELL_LETTERS - 1] + "…"


def _grid(
    measurement: Measurement, *, n_axes: tuple[int, ...]
) -> Float64[Tensor, "row col"]:
    if len(measurement.axes) not in n_axes or not measurement.values.numel():
        raise ValueError(f"{measurement!r} is no grid; valid: {n_axes} non-empty axes")
    values = measurement.values.double()
    return values if values.ndim == 2 else values[None]


def _finish_grid(ax: Axes, measurement: Measurement) -> None:
    down, across = ("", *measurement.axes)[-2:]
    for axis, name in ((ax.yaxis, down), (ax.xaxis, across)):
        labels = [drawable(str(label)) for label in measurement.labels.get(name, ())]
        step = math.ceil(len(labels) / MAX_TICKS) or 1
        axis.set_ticks(range(0, len(labels), step), labels[::step], fontsize=10)
        axis.set_label_text(name, fontsize=11)
    if any(len(str(label)) > 4 for label in measurement.labels[across]):
        lean_names(ax)
    ax.set_title(title(measurement), fontsize=12)


def colour_bar(panels: Sequence[Axes], measurement: Measurement) -> None:
    """Say what the colours mean that heat maps beside each other share."""
    image = panels[0].images[0]
    beyond = _beyond(measurement.values, *image.get_clim())
    bar = panels[0].figure.colorbar(image, ax=panels, extend=beyond)
    bar.set_label(quantity(measurement), fontsize=10)


def _beyond(values: Tensor, low: float, high: float) -> str:
    """On which sides values lie outside the colours, in matplotlib's words."""
    known = values.double()[values.isfinite()]
    sides = bool((known < low).any()), bool((known > high).any())
    return {(True, True): "both", (True, False): "min", (False, True): "max"}.get(
        sides, "neither"
    )
