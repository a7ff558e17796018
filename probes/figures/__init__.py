"""How does a Measurement look? One function per kind of figure, and `save`.

Every function draws on the Axes it is given, or on those of a new `Figure`, and returns
the Axes. No pyplot and no global settings: drawing works headless and leaves other
figures alone. In a notebook (`%matplotlib inline`) show the returned `.figure`.
"""

import math
import tempfile
from collections.abc import Sequence
from itertools import cycle, islice, product
from pathlib import Path

import torch
from jaxtyping import Float64
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.projections.polar import PolarAxes
from torch import Tensor

from probes.measurement import Measurement
from probes.statistics import bootstrap_interval

from .finish import STYLES as STYLES
from .finish import add_foot, fit_titles
from .finish import styled as styled

# fmt: off
OKABE_ITO = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
)
# fmt: on
"""Colours that the colour-blind can tell apart (Okabe and Ito 2008), without yellow."""
FORMATS = ("png", "svg", "pdf")

DASHES = ("-", "--")
"""Alternate between lines, so that two equal curves are both seen."""

MARKED_POINTS = 30
"""Longer curves are drawn without a marker at each point."""

MAX_TICKS, MAX_NAMED_TICKS = 24, 10

CELL_LETTERS = 10
"""Longer texts in the cells of a heat map are cut."""

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
    for ax, place in zip(axes, shown, strict=False):
        part = measurement.select(**dict(zip(leading, place, strict=True)))
        heatmap(part, ax)
        ax.tick_params(labelsize=8)
        ax.set_title(_title(part), fontsize=10)
    for ax in axes[len(shown) :]:
        ax.set_axis_off()
    return figure


def _figure_of(ax: Axes) -> Figure:
    whole = ax.figure
    if not isinstance(whole, Figure):
        raise ValueError("axes of a subfigure cannot be taken alone; give the figure")
    return whole


def heatmap(measurement: Measurement, ax: Axes | None = None) -> Axes:
    """A heat map of two axes: the first down, the second across, with a colour bar.

    Viridis, or a diverging map centred on zero if values of both signs occur.
    """
    grid = _grid(measurement, n_axes=(2,))
    ax = ax or _new_axes(grid.shape[1] * 0.35 + 2, grid.shape[0] * 0.35 + 1.4)
    signed = bool((grid < 0).any())
    top = float(grid.abs().max()) if signed else None
    low = None if top is None else -top
    colours = "PuOr_r" if signed else "viridis"
    image = ax.imshow(grid.numpy(), aspect="auto", cmap=colours, vmin=low, vmax=top)
    _finish_grid(ax, image, measurement)
    return ax


def attention_rows(measurement: Measurement, ax: Axes | None = None) -> Axes:
    """Attention rows with the weight written in every cell; keys across.

    Takes one row (`key`) or several (any axis, then `key`). Colours start at 0; a key
    that a row cannot attend to is not-a-number and stays blank.
    """
    grid = _grid(measurement, n_axes=(1, 2))
    ax = ax or _new_axes(grid.shape[1] * 0.62 + 2, grid.shape[0] * 0.5 + 1.5)
    top = max(float(grid.nan_to_num().max()), 1e-12)
    image = ax.imshow(grid.numpy(), aspect="auto", cmap="cividis", vmin=0, vmax=top)
    for row, weights in enumerate(grid.tolist()):
        for column, weight in enumerate(weights):
            if math.isnan(weight):
                continue
            colour = "white" if weight < 0.55 * top else "black"
            text = ax.text(column, row, f"{weight:.2f}", color=colour, fontsize=9)
            text.set(ha="center", va="center")
    _finish_grid(ax, image, measurement)
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
    ax = ax or _new_axes(*size)
    known = grid.nan_to_num(0.0)
    low, top = min(float(known.min()), 0.0), max(float(known.max()), 1e-12)
    image = ax.imshow(grid.numpy(), aspect="auto", cmap="cividis", vmin=low, vmax=top)
    for row, values in enumerate(grid.tolist()):
        for column, value in enumerate(values):
            colour = "white" if value < low + 0.55 * (top - low) else "black"
            shown = _shortened(texts[row][column])
            text = ax.text(column, row, shown, color=colour, fontsize=7)
            text.set(ha="center", va="center", parse_math=False)
    _finish_grid(ax, image, measurement)
    return ax


def _shortened(text: str) -> str:
    return text if len(text) <= CELL_LETTERS else text[: CELL_LETTERS - 1] + "…"


def curve(
    measurement: Measurement,
    *,
    x: str,
    hue: str | None = None,
    band: str | None = "seed",
    ax: Axes | None = None,
) -> Axes:
    """Lines over axis `x`, one per label of `hue`, with a 95 % bootstrap band.

    Args:
        measurement: Its axes must be `x`, `hue` and `band`; select or average others.
        x: The axis across; numeric labels are placed by value, others evenly.
        hue: The axis that becomes lines.
        band: The axis whose mean is drawn and whose bootstrap gives the band; no band
            is drawn if the measurement does not have that axis.
        ax: Where to draw.
    """
    lines = _lines(measurement, hue)
    blocks = [_samples(part, x, band) for _, _, part in lines]
    ax = ax or _new_axes(5.6, 3.8)
    labels = measurement.labels[x]
    numbers = [float(label) for label in labels if not isinstance(label, str)]
    places = numbers if len(numbers) == len(labels) else list(range(len(labels)))
    marker = "o" if len(places) <= MARKED_POINTS else ""
    for (name, colour, _), block, dash in zip(
        lines, blocks, cycle(DASHES), strict=False
    ):
        mean = block.mean(-1).tolist()
        ax.plot(places, mean, dash + marker, color=colour, markersize=4, label=name)
        if block.shape[-1] > 1:
            low, high = zip(*(bootstrap_interval(row) for row in block), strict=True)
            ax.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    _finish_plot(ax, measurement, x, hue)
    if len(numbers) != len(labels):
        step = math.ceil(len(labels) / MAX_NAMED_TICKS)
        names = [str(label) for label in labels[::step]]
        ax.set_xticks(places[::step], names, rotation=45 if step > 1 else 0)
    return ax


def bars(
    measurement: Measurement,
    *,
    x: str,
    hue: str | None = None,
    band: str | None = "seed",
    ax: Axes | None = None,
) -> Axes:
    """Bars over axis `x`, grouped by `hue`; single values as dots, 95 % error bars.

    The mean over the axis `band` is the bar, its bootstrap interval the error bar;
    arguments as for `curve`.
    """
    lines = _lines(measurement, hue)
    blocks = [_samples(part, x, band) for _, _, part in lines]
    labels = measurement.labels[x]
    ax = ax or _new_axes(max(4.0, 0.5 * len(labels) * len(lines) + 2), 3.8)
    width = 0.8 / len(lines)
    for bar, ((name, colour, _), block) in enumerate(zip(lines, blocks, strict=True)):
        shift = (bar - (len(lines) - 1) / 2) * width
        places = [place + shift for place in range(len(labels))]
        mean = block.mean(-1)
        height = mean.tolist()
        ax.bar(places, height, width * 0.92, color=colour, alpha=0.75, label=name)
        if block.shape[-1] > 1:
            ends = block.new_tensor([bootstrap_interval(row) for row in block]).mT
            error = torch.stack([mean - ends[0], ends[1] - mean]).clamp(min=0).numpy()
            ax.errorbar(places, height, error, fmt="none", color="black", capsize=3)
            for values in block.mT.tolist():
                ax.scatter(places, values, s=10, color="black", alpha=0.5, zorder=3)
    ax.set_xticks(range(len(labels)), [str(label) for label in labels])
    _finish_plot(ax, measurement, x, hue)
    return ax


def polar(
    measurement: Measurement, *, hue: str | None = None, ax: Axes | None = None
) -> Axes:
    """Angles by layer: theta is the angle (0 is aligned), the radius is the layer.

    Small dots are single angles, the line joins each layer's mean. Figure 6 of
    "Identity Bridge".

    Args:
        measurement: Angles in radians (see `alignment.polar_coordinates`) with an axis
            `layer`; other axes are pooled.
        hue: The axis that becomes colours.
        ax: Polar axes to draw on.
    """
    lines = _lines(measurement, hue)
    blocks = [_pooled(part, "layer") for _, _, part in lines]
    ax = ax or Figure((5.6, 4.2), layout="constrained").add_subplot(projection="polar")
    if not isinstance(ax, PolarAxes):
        raise ValueError(f"polar draws on polar axes, got {type(ax).__name__}")
    layers = measurement.labels["layer"]
    # The first layer stands off the centre, where angles cannot be told apart.
    radii = torch.arange(1.0, len(layers) + 1)
    for (name, colour, _), block in zip(lines, blocks, strict=True):
        spots = radii.repeat_interleave(block.shape[1]).tolist()
        ax.scatter(block.flatten().tolist(), spots, s=8, color=colour, alpha=0.35)
        ax.plot(block.mean(-1).numpy(), radii.numpy(), "-o", color=colour, label=name)
    ax.set_thetamax(180 if any(bool((b > math.pi / 2).any()) for b in blocks) else 90)
    ax.set_rlim(0, len(layers) + 0.3)
    ax.set_rticks(radii.tolist(), [str(label) for label in layers])
    ax.set_title(f"{_title(measurement)}\nradius: layer, angle: degrees", fontsize=12)
    if hue:
        ax.legend(title=hue, fontsize=9, loc="upper left", bbox_to_anchor=(1.05, 1.0))
    return ax


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
    fit_titles(whole)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".figure") as folder:
        draft = Path(folder) / path.name
        with rc_context({"svg.hashsalt": "reasonscope", "svg.fonttype": "none"}):
            whole.savefig(draft, dpi=dpi, metadata={"Title": title, stamp: None})
        draft.replace(path)
    return path


def _new_axes(width: float, height: float) -> Axes:
    size = (min(max(width, 5.0), 11.0), min(max(height, 2.0), 8.0))
    return Figure(size, layout="constrained").add_subplot()


def _grid(
    measurement: Measurement, *, n_axes: tuple[int, ...]
) -> Float64[Tensor, "row col"]:
    if len(measurement.axes) not in n_axes or not measurement.values.numel():
        raise ValueError(f"{measurement!r} is no grid; valid: {n_axes} non-empty axes")
    values = measurement.values.double()
    return values if values.ndim == 2 else values[None]


def _lines(
    measurement: Measurement, hue: str | None
) -> list[tuple[str | None, str, Measurement]]:
    """Legend entry, colour and part of the measurement for every label of `hue`."""
    if hue is None:
        return [(None, OKABE_ITO[0], measurement)]
    _check_axis(measurement, hue)
    parts = [measurement.select(**{hue: label}) for label in measurement.labels[hue]]
    names = [str(label) for label in measurement.labels[hue]]
    return list(zip(names, cycle(OKABE_ITO), parts, strict=False))


def _pooled(part: Measurement, axis: str) -> Float64[Tensor, "place sample"]:
    _check_axis(part, axis)
    values = part.values.double().movedim(part.axes.index(axis), 0)
    return values.flatten(1) if values.ndim > 1 else values[:, None]


def _samples(
    part: Measurement, x: str, band: str | None
) -> Float64[Tensor, "place sample"]:
    extra = [axis for axis in part.axes if axis not in (x, band)]
    if extra:
        raise ValueError(f"{part!r}: select or average {extra} before drawing")
    return _pooled(part, x)


def _check_axis(measurement: Measurement, axis: str) -> None:
    if axis not in measurement.axes:
        raise ValueError(f"no axis {axis!r} to draw; valid: {measurement.axes}")


def _title(measurement: Measurement) -> str:
    fixed = measurement.provenance.get("selected", {})
    return ", ".join([measurement.name, *(f"{axis} {fixed[axis]}" for axis in fixed)])


def _quantity(measurement: Measurement) -> str:
    return measurement.name + (f" ({measurement.unit})" if measurement.unit else "")


def _finish_grid(ax: Axes, image: AxesImage, measurement: Measurement) -> None:
    down, across = ("", *measurement.axes)[-2:]
    for axis, name in ((ax.yaxis, down), (ax.xaxis, across)):
        labels = [str(label) for label in measurement.labels.get(name, ())]
        step = math.ceil(len(labels) / MAX_TICKS) or 1
        axis.set_ticks(range(0, len(labels), step), labels[::step], fontsize=10)
        axis.set_label_text(name, fontsize=11)
    if any(len(str(label)) > 4 for label in measurement.labels[across]):
        ax.tick_params("x", rotation=45)
    ax.set_title(_title(measurement), fontsize=12)
    ax.figure.colorbar(image, ax=ax).set_label(_quantity(measurement), fontsize=10)


def _finish_plot(ax: Axes, measurement: Measurement, x: str, hue: str | None) -> None:
    ax.set_title(_title(measurement), fontsize=12)
    ax.set_xlabel(x, fontsize=11)
    ax.set_ylabel(_quantity(measurement), fontsize=11)
    ax.tick_params(labelsize=10)
    ax.grid(visible=True, axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if hue:
        ax.legend(title=hue, fontsize=9, frameon=False)
