"""All observations of the symbols study, from a trained run."""

from circuits.claims import Observed
from trained.store import Run

from . import (
    causal,
    copy_theory,
    copying,
    curves,
    diagonals,
    exchange,
    kernel,
    language,
    patterns,
    recall,
)
from .context import Context

TOPICS = (
    curves,
    causal,
    patterns,
    exchange,
    copying,
    diagonals,
    recall,
    kernel,
    copy_theory,
    language,
)


def observe(run: Run) -> dict[str, Observed]:
    """What was measured, by claim."""
    context = Context(run)
    found: dict[str, Observed] = {}
    for topic in TOPICS:
        found |= topic.observe(context)
    return found
