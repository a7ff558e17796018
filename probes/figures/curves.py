"""Figures of lines: curves with bands, bars, and angles by layer."""

import math
from collections.abc import Sequence
from itertools import combinations, cycle

import torch
from jaxtyping import Float64
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes
from torch import Tensor

from probes.measurement import Measurement
from probes.statistics import bootstrap_interval

from .glyphs import drawable
from .naming import lean_names, new_axes, quantity, title

# fmt: off
OKABE_ITO = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000",
)
# fmt: on
"""Colours that the colour-blind can tell apart (Okabe and Ito 2008), without yellow."""

DASHES = ("-", "--")
"""Alternate between lines, so that two equal curves are both seen."""

MARKED_POINTS = 30
"""Longer curves are drawn without a marker at each point."""

MAX_NAMED_TICKS = 10

LINE_SHIFT = 0.1
"""Of a layer, between the dots of two lines at the same one."""


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
    lines = lines_of(measurement, hue)
    blocks = [samples_of(part, x, band) for _, _, part in lines]
    ax = ax or new_axes(5.6, 3.8)
    labels = measurement.labels[x]
    numbers = [float(label) for label in labels if not isinstance(label, str)]
    places = numbers if len(numbers) == len(labels) else list(range(len(labels)))
    marker = "o" if len(places) <= MARKED_POINTS else ""
    means = [block.mean(-1) for block in blocks]
    sizes = _ring_sizes(means)
    for index, ((name, colour, _), block, dash) in enumerate(
        zip(lines, blocks, cycle(DASHES), strict=False)
    ):
        (line,) = ax.plot(places, means[index].tolist(), dash + marker, color=colour)
        line.set(markersize=sizes[index], label=name)
        if block.shape[-1] > 1:
            low, high = zip(*(bootstrap_interval(row) for row in block), strict=True)
            ax.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    _finish_plot(ax, measurement, x, hue)
    if len(numbers) != len(labels):
        step = math.ceil(len(labels) / MAX_NAMED_TICKS)
        names = [drawable(str(label)) for label in labels[::step]]
        ax.set_xticks(places[::step], names)
        if step > 1:
            lean_names(ax)
    if labels[0] == "embedding" and len(labels) > 2:
        _spare_embedding(ax, torch.stack(means))
    return ax


def _ring_sizes(means: Sequence[Float64[Tensor, " place"]]) -> list[float]:
    """Sizes of the lines' markers: larger for each later line that hides one."""
    whole = torch.stack(list(means)).nan_to_num()
    near = 0.01 * float(whole.max() - whole.min()) + 1e-12
    above = [0] * len(means)
    for one, other in combinations(range(len(means)), 2):
        close = (means[one] - means[other]).abs() <= near
        above[one] += bool(close.double().mean() > 0.5)
    return [4 + 3.0 * count for count in above]


def _spare_embedding(ax: Axes, heights: Float64[Tensor, "line place"]) -> None:
    """Keep the scale of the layers where the embedding alone would set it."""
    low, high = (float(x) for x in heights[:, 1:].aminmax())
    first, room = heights[:, 0].tolist(), max(high - low, 1e-12)
    if all(low - room <= value <= high + room for value in first):
        return
    ax.set_ylim(low - 0.2 * room, high + 0.2 * room)
    said = "embedding, off the scale: " + ", ".join(f"{value:.3g}" for value in first)
    ax.text(0.2, 0.02, said, transform=ax.transAxes, fontsize=8, alpha=0.7)


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
    lines = lines_of(measurement, hue)
    blocks = [samples_of(part, x, band) for _, _, part in lines]
    labels = measurement.labels[x]
    ax = ax or new_axes(max(4.0, 0.5 * len(labels) * len(lines) + 2), 3.8)
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
            ink = rcParams["text.color"]
            ax.errorbar(places, height, error, fmt="none", color=ink, capsize=3)
            for values in block.mT.tolist():
                ax.scatter(places, values, s=10, color=ink, alpha=0.5, zorder=3)
    ax.set_xticks(range(len(labels)), [drawable(str(label)) for label in labels])
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
    lines = lines_of(measurement, hue)
    blocks = [_pooled(part, "layer") for _, _, part in lines]
    ax = ax or Figure((5.6, 4.2), layout="constrained").add_subplot(projection="polar")
    if not isinstance(ax, PolarAxes):
        raise ValueError(f"polar draws on polar axes, got {type(ax).__name__}")
    layers = measurement.labels["layer"]
    # The first layer stands off the centre, where angles cannot be told apart.
    radii = torch.arange(1.0, len(layers) + 1)
    for index, ((name, colour, _), block) in enumerate(zip(lines, blocks, strict=True)):
        # Each line has an arc of its own beside the layer's: dots do not hide others.
        aside = LINE_SHIFT * (index - (len(lines) - 1) / 2)
        spots = (radii + aside).repeat_interleave(block.shape[1]).tolist()
        ax.scatter(block.flatten().tolist(), spots, s=8, color=colour, alpha=0.35)
        ax.plot(block.mean(-1).numpy(), radii.numpy(), "-o", color=colour, label=name)
    widest = math.degrees(max(float(block.max()) for block in blocks))
    # No room for angles that do not occur; at least a quarter.
    ax.set_thetamax(min(180, max(90, 15 * math.ceil(widest / 15))))
    ax.set_rlim(0, len(layers) + 0.3)
    ax.set_rticks(radii.tolist(), [str(label) for label in layers])
    ax.set_title(f"{title(measurement)}\nradius: layer, angle: degrees", fontsize=12)
    if hue:
        ax.legend(
            title=hue,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.08),
            ncols=2,
            fontsize=9,
            frameon=False,
        )
    return ax


def lines_of(
    measurement: Measurement, hue: str | None
) -> list[tuple[str | None, str, Measurement]]:
    """Legend entry, colour and part of the measurement for every label of `hue`."""
    if hue is None:
        return [(None, OKABE_ITO[0], measurement)]
    _check_axis(measurement, hue)
    parts = [measurement.select(**{hue: label}) for label in measurement.labels[hue]]
    names = [drawable(str(label)) for label in measurement.labels[hue]]
    # The last colour is the ink's: black cannot be seen in the dark.
    colours = cycle((*OKABE_ITO[:-1], rcParams["text.color"]))
    return list(zip(names, colours, parts, strict=False))


def _pooled(part: Measurement, axis: str) -> Float64[Tensor, "place sample"]:
    _check_axis(part, axis)
    values = part.values.double().movedim(part.axes.index(axis), 0)
    return values.flatten(1) if values.ndim > 1 else values[:, None]


def samples_of(
    part: Measurement, x: str, band: str | None
) -> Float64[Tensor, "place sample"]:
    """The repetitions at every place on an axis; `ValueError` if axes are left."""
    extra = [axis for axis in part.axes if axis not in (x, band)]
    if extra:
        raise ValueError(f"{part!r}: select or average {extra} before drawing")
    return _pooled(part, x)


def _check_axis(measurement: Measurement, axis: str) -> None:
    if axis not in measurement.axes:
        raise ValueError(f"no axis {axis!r} to draw; valid: {measurement.axes}")


def _finish_plot(ax: Axes, measurement: Measurement, x: str, hue: str | None) -> None:
    ax.set_title(title(measurement), fontsize=12)
    ax.set_xlabel(x, fontsize=11)
    ax.set_ylabel(quantity(measurement), fontsize=11)
    ax.tick_params(labelsize=10)
    ax.grid(visible=True, axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    if hue:
        ax.legend(title=hue, fontsize=9, frameon=False)
