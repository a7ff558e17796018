"""All observations of the bridge study, from a trained run."""

from circuits.claims import Observed
from trained.store import Run

from . import accuracy, alignment, causal, matrix, templates, theory, variants
from .context import Context


def observe(run: Run) -> dict[str, Observed]:
    """What was measured, by claim."""
    context = Context(run)
    found: dict[str, Observed] = {}
    for topic in (theory, accuracy, templates, alignment, causal, matrix, variants):
        found |= topic.observe(context)
    return found
