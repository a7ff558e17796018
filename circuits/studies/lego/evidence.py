"""All observations of the lego study, from a trained run."""

from circuits.claims import Observed
from trained.store import Run

from . import (
    causal,
    concentration,
    distraction,
    exchange,
    features,
    length,
    ordinary,
    reduced,
    repair,
    retrieval,
    selftrain,
    theory,
)
from .context import Context

TOPICS = (
    length,
    retrieval,
    concentration,
    selftrain,
    exchange,
    causal,
    repair,
    distraction,
    theory,
    features,
    reduced,
    ordinary,
)


def observe(run: Run) -> dict[str, Observed]:
    """What was measured, by claim."""
    context = Context(run)
    found: dict[str, Observed] = {}
    for topic in TOPICS:
        found |= topic.observe(context)
    return found
