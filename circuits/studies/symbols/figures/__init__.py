"""The figures of the symbols study, each from a trained run."""

from collections.abc import Callable

from matplotlib.figure import Figure

from trained.store import Run

from .models import causal, copying_error, diagonals, efficiency
from .theory import first_step, kernel, kernel_regression

FIGURES: dict[str, Callable[[Run], Figure]] = {
    "efficiency": efficiency,
    "copying": copying_error,
    "diagonals": diagonals,
    "causal": causal,
    "kernel": kernel,
    "kernel-regression": kernel_regression,
    "first-step": first_step,
}
