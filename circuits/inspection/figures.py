"""The figures of an inspected prompt, drawn from its readings."""

from collections.abc import Iterator

from matplotlib.figure import Figure
from matplotlib.text import Text

from probes.figures import OKABE_ITO, curve, heatmap, text_heatmap
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
            yield "mass", mass_figure(attention.mass)
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
    left.set_yscale("log")
    left.invert_yaxis()
    yield "answer", plain(figure)
    for name, change in found.differences().items():
        if name in ("logit", "attention", "patching"):
            yield name, plain(grid_figure(change))
        elif name in ("mass", "alignment"):
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
    left.set_yscale("log")
    left.invert_yaxis()
    curve(reading.log_prob, x="layer", band="example", ax=right)
    return figure


def alignment_figure(measurement: Measurement) -> Figure:
    """For every pair of roles its cosine by layer, among those of other tokens."""
    pairs = measurement.labels["pair"]
    across = min(len(pairs), 3)
    down = -(-len(pairs) // across)
    figure = Figure((4.6 * across, 3.6 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for ax, pair in zip(axes, pairs, strict=False):
        part = measurement.select(pair=pair)
        curve(
            part.select(of=["roles", "other tokens"]), x="layer", hue="of", ax=ax
        ).set_title(str(pair))
        low, high = (part.select(of=end).values.tolist() for end in ("low", "high"))
        ax.fill_between(
            range(len(low)), low, high, color=OKABE_ITO[1], alpha=0.2, linewidth=0
        )
    for ax in axes[len(pairs) :]:
        ax.set_axis_off()
    return figure


def mass_figure(measurement: Measurement) -> Figure:
    """For every look at a role, how much of it each head gives."""
    axes, labels = measurement.axes[1:], dict(measurement.labels)
    del labels["keys"]
    own = measurement.values[0]
    return Measurement(own, axes, labels, name=measurement.name).plot()


def grid_figure(measurement: Measurement) -> Figure:
    """A plain heat map: logits, patching or concentration, layers down."""
    across = measurement.axes[1]
    names = measurement.labels[across]
    step = -(-len(names) // WIDEST_GRID)
    thinned = measurement.select(**{across: names[::step]}) if step > 1 else measurement
    rows, columns = thinned.values.shape
    figure = _page(columns * 0.5 + 2.4, rows * 0.22 + 1.6)
    heatmap(thinned, figure.add_subplot())
    return figure


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
