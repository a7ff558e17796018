"""What is written on every figure: its title, its quantity; and the axes to draw on."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from probes.measurement import Measurement

from .glyphs import drawable


def new_axes(width: float, height: float) -> Axes:
    """Axes of a new figure, neither tiny nor huge."""
    size = (min(max(width, 5.0), 11.0), min(max(height, 2.0), 8.0))
    return Figure(size, layout="constrained").add_subplot()


def title(measurement: Measurement) -> str:
    """The name of what is drawn, and where on its other axes."""
    fixed = measurement.provenance.get("selected", {})
    parts = [measurement.name, *(f"{axis} {fixed[axis]}" for axis in fixed)]
    return drawable(", ".join(parts))


def quantity(measurement: Measurement) -> str:
    """The name and unit of what is drawn."""
    unit = f" ({measurement.unit})" if measurement.unit else ""
    return drawable(measurement.name + unit)


def lean_names(ax: Axes) -> None:
    """Lean the names below an axis, each ending at its tick: long ones do not touch."""
    for label in ax.get_xticklabels():
        label.set(rotation=45, ha="right", rotation_mode="anchor")
