"""The figures of an inspected prompt, drawn from its readings."""

from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter

from probes.figures import (
    OKABE_ITO,
    curve,
    heatmap,
    limits_of,
    shared_legend,
    text_heatmap,
)
from probes.figures.glyphs import drawable
from probes.measurement import Measurement

from .comparison import Comparison
from .inspect import Inspection
from .lens import LensReading

WIDEST_GRID = 512
"""Places across: a longer prompt is thinned out."""


def all_figures(inspection: Inspection) -> Iterator[tuple[str, Figure]]:
    """Every figure of the readings, with its name."""
    for name, figure in _figures(inspection):
        yield name, plain(figure)


def _figures(inspection: Inspection) -> Iterator[tuple[str, Figure]]:
    yield "lens", lens_figure(inspection.lens)
    yield "answer", answer_figure(inspection.lens)
    yield "logit", grid_figure(inspection.logit)
    attention = inspection.attention
    if attention is not None:
        yield "attention", grid_figure(attention.concentration)
        yield "heads", attention.patterns.plot()
        if attention.mass is not None:
            yield "mass", mass_figure(attention.mass.select(keys="role"))
    if inspection.alignment is not None:
        yield "alignment", alignment_figure(inspection.alignment)
    if inspection.patching is not None:
        yield "patching", grid_figure(inspection.patching)


def comparison_figures(found: Comparison) -> Iterator[tuple[str, Figure]]:
    """Both models' answers in one figure, and a map of every other difference."""
    beside = found.beside()
    figure = Figure((9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, ax in (("rank", left), ("log_prob", right)):
        curve(beside[name], x="layer", hue="model", band=None, ax=ax)
    _name_heights(left, right)
    yield "answer", plain(figure)
    for name, change in found.differences().items():
        if name in ("logit", "attention", "patching"):
            yield name, plain(grid_figure(change))
        elif name == "mass":
            yield name, plain(mass_figure(change))
        elif name == "alignment":
            yield name, plain(change.plot())


def lens_figure(reading: LensReading) -> Figure:
    """Layers down, positions across, the top token in each cell."""
    rows, columns = reading.probability.values.shape
    figure = _page(columns * 0.85 + 2.4, rows * 0.26 + 1.6)
    text_heatmap(reading.probability, reading.tokens, figure.add_subplot())
    return figure


def answer_figure(reading: LensReading) -> Figure:
    """Rank and log-probability of the answer by layer."""
    figure = Figure((9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    curve(reading.rank, x="layer", band="example", ax=left)
    curve(reading.log_prob, x="layer", band="example", ax=right)
    _name_heights(left, right)
    return figure


def _name_heights(rank: Axes, log_prob: Axes) -> None:
    """Name what is up and down; the titles say of which answer."""
    _by_rank(rank)
    rank.set_ylabel("rank (1 is the top)")
    log_prob.set_ylabel("log p (nats)")


def _by_rank(ax: Axes) -> None:
    """Rank 1 on top, in numbers: `plain` would show a power's formula as its source."""
    ax.set_yscale("log")
    ax.invert_yaxis()
    ax.yaxis.set_major_formatter(LogFormatter())
    ax.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))


def alignment_figure(measurement: Measurement) -> Figure:
    """For every pair of roles its cosine by layer, among those of other tokens."""
    pairs = measurement.labels["pair"]
    across = min(len(pairs), 3)
    down = -(-len(pairs) // across)
    figure = Figure((4.2 * across + 0.8, 3.4 * down + 0.6), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharey=True).flatten()
    for place, (ax, pair) in enumerate(zip(axes, pairs, strict=False)):
        part = measurement.select(pair=pair)
        shown = part.select(of=["roles", "other tokens"])
        curve(shown, x="layer", hue="of", ax=ax).set_title(str(pair))
        low, high = (part.select(of=end).values.tolist() for end in ("low", "high"))
        band = ax.fill_between(range(len(low)), low, high, color=OKABE_ITO[1])
        band.set(alpha=0.2, linewidth=0, label="other tokens: 95 % of them")
        for line, name in zip(
            ax.lines, ("the two roles", "other tokens: mean"), strict=True
        ):
            line.set_label(name)
        # Panels beside each other share their height, and its name.
        ax.set_ylabel("" if place % across else "cosine, the prompt's mean taken off")
    for ax in axes[len(pairs) :]:
        ax.set_axis_off()
    shared_legend(figure, ncols=3)
    return figure


def mass_figure(measurement: Measurement) -> Figure:
    """For every look at a role, how much of it each head gives."""
    figure = measurement.plot()
    for ax, look in zip(figure.axes, measurement.labels["look"], strict=False):
        ax.set_title(drawable(str(look)), fontsize=10)
    figure.suptitle(drawable(measurement.name), fontsize=12)
    return figure


def grid_figure(measurement: Measurement) -> Figure:
    """A plain heat map: logits, patching or concentration, layers down."""
    across = measurement.axes[1]
    names = measurement.labels[across]
    step = -(-len(names) // WIDEST_GRID)
    thinned = measurement.select(**{across: names[::step]}) if step > 1 else measurement
    rows, columns = thinned.values.shape
    figure = _page(columns * 0.5 + 2.4, rows * 0.22 + 1.6)
    heatmap(thinned, figure.add_subplot(), limits=_limits(thinned))
    return figure


def _limits(measurement: Measurement) -> tuple[float, float]:
    """Where colours end: the embedding's logits, which are huge, would set them."""
    rows = measurement.values
    named = measurement.labels.get("layer", ("",))[0] == "embedding" and len(rows) > 2
    return limits_of(rows[1:] if named else rows)


def plain(figure: Figure) -> Figure:
    """A figure in which no text is a formula: tokens are shown as they are."""
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_parse_math(False)
    return figure


def _page(width: float, height: float) -> Figure:
    """A page that fits its grid, wide enough for a title and never huge."""
    size = (min(max(width, 5.4), 16.0), min(max(height, 3.0), 10.0))
    return Figure(size, layout="constrained")
