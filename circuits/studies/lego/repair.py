"""Is concentration all that fails at long lengths?

At the largest length: attention is put on the targets by hand, or sharpened, and the
answers should return; a dose of misplaced attention should take them away again. From
the dose that the FFN tolerates and the sharpness K at the training length, the largest
solvable length can be predicted without a long test.
"""

import math
from collections.abc import Callable

from circuits.claims import Observed
from trained.lego.action import action

from .concentration import fitted
from .context import Context
from .dilution import longest
from .edits import dosed, in_head, misled, oracle, sharpened
from .length import all_by_length, crossing
from .reading import PatternEdit, marks
from .specimen import Specimen, each

SHARPER = 1.5
DOSES = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
DOSE_LENGTH = 40
"""Where doses are given: enough clauses to spread a leak over."""
LEAK = 0.5


def observe(context: Context) -> dict[str, Observed]:
    """Oracle, sharpening, doses, leaks and the predicted length, group by group."""
    found: dict[str, Observed] = {}
    for group in context.config.groups:
        name = action(group).slug.lower()
        specimens = context.models(group)
        found |= _repairs(context, name, specimens)
        curves = [dose_curve(context, s) for s in specimens]
        found[f"lego.dose.{name}"] = Observed.of(
            [curve[DOSES[0]] for curve in curves],
            [curve[DOSES[-1]] for curve in curves],
        )
        leaks = [leak_gap(context, s) for s in specimens]
        found[f"lego.leak.{name}"] = Observed.of(
            [late for late, _ in leaks], [early for _, early in leaks]
        )
        if context.config.lengths[-1] > context.config.train_length:
            found[f"lego.predicted.{name}"] = _predictions(context, group)
    return found


def _repairs(
    context: Context, name: str, specimens: list[Specimen]
) -> dict[str, Observed]:
    def right(edit: PatternEdit) -> list[float]:
        return [marks(s, context.long(s), edit).all for s in specimens]

    found = {
        f"lego.cause.oracle.{name}": Observed.of(right(oracle), right(misled)),
        f"lego.cause.sharper.{name}": Observed.of(
            right(sharpened(SHARPER)), right(sharpened(1 / SHARPER))
        ),
    }
    if context.config.n_heads > 1:
        found[f"lego.cause.one-head.{name}"] = _one_head(context, specimens)
    return found


def _one_head(context: Context, specimens: list[Specimen]) -> Observed:
    """Oracle attention in one head, the others' own: the smallest and largest gain."""
    gains: list[list[float]] = []
    for specimen in specimens:
        sentences = context.long(specimen)
        before = marks(specimen, sentences).step
        gains.append(
            [
                marks(specimen, sentences, in_head(head, oracle)).step - before
                for head in range(context.config.n_heads)
            ]
        )
    return Observed.of([min(g) for g in gains], [max(g) - min(g) for g in gains])


def dose_length(context: Context) -> int:
    """The length at which doses are given."""
    return min(DOSE_LENGTH, context.config.lengths[-1])


def dose_curve(context: Context, specimen: Specimen) -> dict[float, float]:
    """Value accuracy per step for every dose of misplaced attention."""
    sentences = specimen.sentences(dose_length(context), context.config.n_sentences)
    return {dose: marks(specimen, sentences, dosed(dose)).step for dose in DOSES}


def leak_gap(context: Context, specimen: Specimen) -> tuple[float, float]:
    """Value accuracy, a leak onto predicates minus one onto answers, late and early.

    Late steps see about as many other answers as predicates, so that both leaks are
    spread alike; early ones see few answers.
    """
    length = dose_length(context)
    sentences = specimen.sentences(length, context.config.n_sentences)
    onto = {
        where: marks(specimen, sentences, dosed(LEAK, where)).value.double().mean(0)
        for where in ("predicates", "answers")
    }
    gap = onto["predicates"] - onto["answers"]
    half = length // 2
    return float(gap[half:].mean()), float(gap[1:half].mean())


def tolerated(context: Context, specimen: Specimen) -> float:
    """The largest eps at which a chain of the dose length is still solved at 0.9.

    Where per-step accuracy falls through 0.9^(1/L), by bisection.
    """
    length = dose_length(context)
    sentences = specimen.sentences(length, context.config.n_sentences)
    wanted = 0.9 ** (1 / length)

    def holds(eps: float) -> bool:
        return marks(specimen, sentences, dosed(eps)).step >= wanted

    return bisected(holds, 0.02, 0.98)


def bisected(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The place between low and high where something that held ceases to."""
    for _ in range(7):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def predicted_length(context: Context, specimen: Specimen, sharpness: float) -> float:
    """The predicted crossing, from K and the tolerated eps."""
    return longest(sharpness, tolerated(context, specimen))


def prediction_error(context: Context, specimen: Specimen, predicted: float) -> float:
    """|log2(predicted / measured crossing)|; beyond the tested range only one-sided."""
    measured = crossing(all_by_length(context, specimen))
    lengths = context.config.lengths
    if measured >= lengths[-1]:
        predicted = min(predicted, measured)
    if measured <= lengths[0]:
        predicted = max(predicted, measured)
    return abs(math.log2(max(predicted, 1.0) / measured))


def _predictions(context: Context, group: str) -> Observed:
    """With the model's own K, and with that of the smallest budget."""
    specimens = context.models(group)
    weak = context.models(group, context.config.budgets[0])
    own = each(
        specimens,
        lambda s: prediction_error(
            context, s, predicted_length(context, s, fitted(context, s))
        ),
    )
    other = [
        prediction_error(context, s, predicted_length(context, s, fitted(context, w)))
        for s, w in zip(specimens, weak, strict=True)
    ]
    return Observed.of(own, other)
