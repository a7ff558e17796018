"""All observations of the recall study, claim by claim."""

from circuits.claims import Observed
from probes.attention import within_pair_ratio
from trained.store import Run

from . import causal, causal_answer, general, memory, order, patterns, samples, warmup
from .context import Context


def observe(run: Run) -> dict[str, Observed]:
    """Measure a trained run: claim id -> values and control values."""
    context = Context(run)
    config, seeds = context.config, context.seeds
    cells = [
        general.solve(n, temperature, seeds)
        for n in config.theorem_subjects
        for temperature in config.low_temperatures
    ]
    low = cells[0].outcome.attention
    warm = {t: warmup.solve(t, seeds) for t in config.warmup_temperatures}
    final = warm[config.warmup_temperatures[0]].attention[:-1]
    warm_ratio = float(within_pair_ratio(final, warmup.PAIRS).max())
    result = {
        **memory.observe(context),
        **warmup.observe(warm, low),
        **general.observe(context, cells, warm_ratio),
        **patterns.observe(context),
        **samples.observe(context),
        **order.observe(context),
        **causal_answer.observe(context),
    }
    if config.n_examples == 2:
        result |= causal.observe(context)
    return result
