"""The figures of an inspected prompt, drawn from its readings."""

from collections.abc import Iterator

from matplotlib.figure import Figure

from probes.figures import curve, heatmap, text_heatmap
from probes.measurement import Measurement

from .inspect import Inspection
from .lens import LensReading


def all_figures(inspection: Inspection) -> Iterator[tuple[str, Figure]]:
    """Every figure of the readings, with its name."""
    yield "lens", lens_figure(inspection.lens)
    yield "answer", answer_figure(inspection.lens)
    if inspection.attention is not None:
        yield "attention", grid_figure(inspection.attention.concentration)
        yield "heads", inspection.attention.patterns.plot()
    if inspection.alignment is not None:
        yield "alignment", grid_figure(inspection.alignment)
    if inspection.patching is not None:
        yield "patching", grid_figure(inspection.patching)


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


def grid_figure(measurement: Measurement) -> Figure:
    """A plain heat map: alignment, patching or concentration, layers down."""
    rows, columns = measurement.values.shape
    figure = _page(columns * 0.5 + 2.4, rows * 0.22 + 1.6)
    heatmap(measurement, figure.add_subplot())
    return figure


def _page(width: float, height: float) -> Figure:
    """A page that fits its grid, wide enough for a title and never huge."""
    size = (min(max(width, 5.4), 16.0), min(max(height, 3.0), 10.0))
    return Figure(size, layout="constrained")
