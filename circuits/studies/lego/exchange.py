"""Is it the attention or the FFN? The FFN of one group with the attention of another.

The key-query tables know variables only, so those of one group fit the FFN of another.
The answer is a table over lengths, and the paper's story, that attention decides, is
one of its rows.
"""

from circuits.claims import Observed

from .context import Context
from .reading import Marks
from .specimen import Specimen

Cell = tuple[str, str]
"""(group of the FFN, group of the attention)."""


def observe(context: Context) -> dict[str, Observed]:
    """What exchanged attention changes, at every test length beyond training."""
    config = context.config
    if not (config.simple and config.symmetric):
        return {}
    cells = exchanged(context)
    one, other = config.simple, config.symmetric
    found = {}
    for length in config.lengths:
        if length <= config.train_length:
            continue
        step = {
            cell: [marks[length].step for marks in seeds]
            for cell, seeds in cells.items()
        }
        found[f"lego.exchange.{length}"] = Observed.of(
            _differences(step[other, one], step[other, other]),
            _differences(step[one, one], step[one, other]),
        )
    return found


def exchanged(context: Context) -> dict[Cell, list[dict[int, Marks]]]:
    """The marks by length of every pair of FFN and attention, seed by seed."""
    pair = (context.config.simple, context.config.symmetric)
    models = {group: context.models(group) for group in pair if group is not None}
    return {
        (body, eyes): [
            context.curve(a if body == eyes else with_attention(a, b))
            for a, b in zip(models[body], models[eyes], strict=True)
        ]
        for body in models
        for eyes in models
    }


def with_attention(specimen: Specimen, donor: Specimen) -> Specimen:
    """One model's FFN with another's attention."""
    return specimen.attending(donor.tables)


def _differences(first: list[float], second: list[float]) -> list[float]:
    return [a - b for a, b in zip(first, second, strict=True)]
