"""The figures of the symbols study, each from an opened run."""

from collections.abc import Callable

from matplotlib.figure import Figure

from circuits.studies.symbols.lab import SymbolsLab

from .curves import beside_paper, copying_error, efficiency, psychometric_error
from .theory import first_step, kernel, kernel_regression, nonsingular
from .weights import causal, diagonals

FIGURES: dict[str, Callable[[SymbolsLab], Figure]] = {
    "efficiency": efficiency,
    "paper": beside_paper,
    "copying": copying_error,
    "psychometric": psychometric_error,
    "diagonals": diagonals,
    "causal": causal,
    "kernel": kernel,
    "kernel-regression": kernel_regression,
    "nonsingular": nonsingular,
    "first-step": first_step,
}
