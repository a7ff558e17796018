"""How concentrated is attention, and what does length do to it (Figures 6 and 7)?"""

import math

from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from probes.attention import concentration_error
from trained.lego.action import action

from .context import Context
from .dilution import diluted_error, sharpness
from .edits import sharpened
from .reading import PatternEdit, patterns
from .specimen import Specimen, each

POSITION_LENGTH = 20
"""The length of Figures 6 and 7 at which positions are compared."""
LAW_SENTENCES = 25
"""Most sentences that eps at the largest length is measured on: its spread is small."""


def observe(context: Context) -> dict[str, Observed]:
    """The dilution law, the groups' sharpness, attention against position."""
    found: dict[str, Observed] = {}
    config = context.config
    for group in config.groups:
        if config.lengths[-1] > config.train_length:
            found[f"lego.dilution.{action(group).slug.lower()}"] = Observed.of(
                each(context.models(group), lambda s: law_error(context, s)),
                each(
                    context.models(group),
                    lambda s: law_error(context, s, length_scaled(context)),
                ),
            )
    if config.simple and config.symmetric:
        found |= _compared(context, config.simple, config.symmetric)
    return found


def _compared(context: Context, simple: str, symmetric: str) -> dict[str, Observed]:
    one, other = (
        [fitted(context, s) for s in context.models(group)]
        for group in (simple, symmetric)
    )
    length = min(POSITION_LENGTH, context.config.lengths[-1])
    drops = {
        group: [position_drop(s, length) for s in context.models(group)]
        for group in (simple, symmetric)
    }
    return {
        "lego.concentration": Observed.of(
            [b / a for a, b in zip(one, other, strict=True)],
            [a / b for a, b in zip(one, one[1:] + one[:1], strict=True)],
        ),
        **{
            f"lego.position.{what}": Observed.of(
                [drop[target] for drop in drops[symmetric]],
                [drop[target] for drop in drops[simple]],
            )
            for target, what in enumerate(("predicate", "answer"))
        },
    }


def error(specimen: Specimen, length: int, count: int) -> float:
    """eps: the attention that misses both targets, mean over heads and steps."""
    sentences = specimen.sentences(length, count)
    rows = patterns(specimen, sentences).mean(1)
    return float(concentration_error(rows, sentences.targets()).mean())


def fitted(context: Context, specimen: Specimen) -> float:
    """K, fitted to eps at the training length."""
    sentences = context.short(specimen)
    rows = patterns(specimen, sentences).mean(1)
    found = concentration_error(rows, sentences.targets()).mean()
    return sharpness(float(found), context.config.train_length)


def law_error(
    context: Context, specimen: Specimen, edit: PatternEdit | None = None
) -> float:
    """|predicted - measured| / measured eps at the largest length.

    The prediction knows only K at the training length, where nothing is edited.
    """
    config = context.config
    length = config.lengths[-1]
    sentences = specimen.sentences(length, min(config.n_sentences, LAW_SENTENCES))
    pattern = patterns(specimen, sentences)
    rows = (edit(pattern, sentences) if edit else pattern).mean(1)
    measured = float(concentration_error(rows, sentences.targets()).mean())
    predicted = diluted_error(fitted(context, specimen), length)
    return abs(predicted - measured) / measured


def length_scaled(context: Context) -> PatternEdit:
    """Scores that grow with the logarithm of the length: the law must fail."""
    lengths = (context.config.lengths[-1], context.config.train_length)
    first, second = (math.log(length) for length in lengths)
    return sharpened(first / second)


def by_position(
    specimen: Specimen, length: int, count: int = 100
) -> Float[Tensor, "target step"]:
    """Mean attention on the target predicate and on the target answer, by step."""
    sentences = specimen.sentences(length, count)
    rows = patterns(specimen, sentences).mean(1)
    return rows.gather(-1, sentences.targets()).mean(0).mT


def position_drop(specimen: Specimen, length: int) -> tuple[float, float]:
    """Relative loss of attention from the first to the last step, for both targets."""
    found = by_position(specimen, length)
    drop = 1 - found[:, -1] / found[:, 0]
    return float(drop[0]), float(drop[1])
