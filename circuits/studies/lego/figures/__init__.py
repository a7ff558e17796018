"""The figures of the lego study, by kind."""

from collections.abc import Callable

from matplotlib.figure import Figure

from trained.store import Run

from .attention import attention, causal, dose, position
from .length import exchange, length, selftrain, sweep, training
from .theory import features, theory

FIGURES: dict[str, Callable[[Run], Figure]] = {
    "length": length,
    "selftrain": selftrain,
    "sweep": sweep,
    "training": training,
    "exchange": exchange,
    "attention": attention,
    "position": position,
    "dose": dose,
    "causal": causal,
    "theory": theory,
    "features": features,
}
