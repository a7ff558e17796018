"""Does an ordinary transformer, trained by the paper's recipe, do the same?

Its length counts only where the training length was learned: a model that sits at the
entropy of a uniform guess has not failed to generalise, it has failed to train.
"""

from circuits.claims import Observed
from trained.lego.action import action
from trained.lego.config import Standard

from .context import Context
from .length import solved
from .reading import marks
from .retrieval import target_mass
from .specimen import Specimen, each


def observe(context: Context) -> dict[str, Observed]:
    """Learned, how far, and where it attends."""
    found: dict[str, Observed] = {}
    for group in context.config.groups:
        for variant in context.config.standard:
            found |= _one(context, group, variant)
    return found


def _one(context: Context, group: str, variant: Standard) -> dict[str, Observed]:
    name = f"{action(group).slug.lower()}.{variant}"
    trained = context.ordinary(group, variant)
    fresh = context.untrained_ordinary(group, variant)

    def learned(specimen: Specimen) -> float:
        return marks(specimen, context.short(specimen)).all

    found = {
        f"lego.standard.learned.{name}": Observed.of(
            each(trained, learned), each(fresh, learned)
        ),
        f"lego.standard.diagonals.{name}": Observed.of(
            each(trained, lambda s: target_mass(context, s)),
            each(fresh, lambda s: target_mass(context, s)),
        ),
    }
    if variant != "positions":
        found[f"lego.standard.length.{name}"] = Observed.of(
            each(trained, lambda s: solved(context, s)),
            each(fresh, lambda s: solved(context, s)),
        )
    return found
