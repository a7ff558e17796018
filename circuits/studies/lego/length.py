"""How long a chain can a model solve (Figure 1a), and at which training budget?

`all` is the share of sentences whose rollout is right throughout, L* the largest tested
length with all >= 0.9. Per-step accuracy stays near 1 where `all` is already 0.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median

from circuits.claims import Observed
from trained.lego.action import action
from trained.lego.answers import clause_losses

from .context import Context
from .edits import oracle
from .reading import marks, predictions
from .retrieval import uniform
from .specimen import Specimen, each

SOLVED = 0.9
"""`all` at and above which a length counts as solved."""


def observe(context: Context) -> dict[str, Observed]:
    """Learned at the training length, generalised beyond it, compared by budget."""
    config = context.config
    found: dict[str, Observed] = {}
    for group in config.groups:
        name = action(group).slug.lower()
        trained = context.models(group)
        blind = [uniform(specimen) for specimen in trained]
        found[f"lego.learned.{name}"] = Observed.of(
            each(trained, lambda s: marks(s, context.short(s)).all),
            each(blind, lambda s: marks(s, context.short(s)).all),
        )
        found[f"lego.length.{name}"] = Observed.of(
            each(trained, lambda s: solved(context, s)),
            each(blind, lambda s: solved(context, s)),
        )
    if config.simple and config.symmetric:
        found |= _separation(context, config.simple, config.symmetric)
    return found | _reported(context)


def solved_length(curve: Mapping[int, float]) -> int:
    """L*: the largest tested length with all >= 0.9; 0 if there is none.

    >>> solved_length({5: 1.0, 10: 0.95, 20: 0.4})
    10
    """
    return max((length for length, all_ in curve.items() if all_ >= SOLVED), default=0)


def crossing(curve: Mapping[int, float]) -> float:
    """Where `all` falls through 0.9, linear in log L between tested lengths.

    The largest length if it never falls, the smallest if it starts below.
    """
    lengths = sorted(curve)
    above = lengths[0]
    if curve[above] < SOLVED:
        return float(above)
    for length in lengths[1:]:
        if curve[length] < SOLVED:
            share = (curve[above] - SOLVED) / (curve[above] - curve[length])
            return above * (length / above) ** share
        above = length
    return float(above)


def all_by_length(context: Context, specimen: Specimen) -> dict[int, float]:
    """`all` at every test length."""
    return {length: seen.all for length, seen in context.curve(specimen).items()}


def solved(context: Context, specimen: Specimen) -> float:
    """L* of a model."""
    return float(solved_length(all_by_length(context, specimen)))


def loss_ratio(context: Context, specimen: Specimen) -> float:
    """The value's loss at the training length over its floor, at least about 1.

    The floor is the same FFN's loss with half of the attention on each target: an
    absolute loss cannot be compared between groups, since the floor differs.
    """
    sentences = context.short(specimen)
    own, best = (
        float(clause_losses(predictions(specimen, sentences, edit), sentences)[1])
        for edit in (None, oracle)
    )
    return own / best


def _separation(context: Context, simple: str, symmetric: str) -> dict[str, Observed]:
    """L* of one group over that of the other, at every budget."""
    config = context.config
    found: dict[str, Observed] = {}
    clear, by_chance = 0.0, 0.0
    for budget in config.budgets:
        one, other = (
            [max(solved(context, s), 1.0) for s in context.models(group, budget)]
            for group in (simple, symmetric)
        )
        ratios = log_ratios(one, other)
        null = log_ratios(one, one[1:] + one[:1])
        clear += median(ratios) >= 1
        by_chance += median(null) >= 1
        found[f"lego.separation.steps{budget}"] = Observed.of(
            ratios, [abs(ratio) for ratio in null]
        )
    if len(config.budgets) > 1:
        found["lego.separation.budgets"] = Observed.of([clear], [by_chance])
        found["lego.separation.loss-matched"] = _loss_matched(
            context, simple, symmetric
        )
    return found


def log_ratios(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """log2(a / b), pair by pair."""
    return [math.log2(a / b) for a, b in zip(first, second, strict=True)]


def _loss_matched(context: Context, simple: str, symmetric: str) -> Observed:
    """log2 of the groups' crossings at equal loss over floor, seed by seed."""
    budgets = context.config.budgets
    paths = {
        group: [
            [_point(context, models[seed]) for models in by_budget]
            for seed in range(len(by_budget[0]))
        ]
        for group in (simple, symmetric)
        for by_budget in [[context.models(group, b) for b in budgets]]
    }
    pairs = zip(paths[simple], paths[symmetric], strict=True)
    ratios = [matched_gap(one, other) for one, other in pairs]
    null = [
        matched_gap(one, other)
        for one, other in zip(
            paths[simple], paths[simple][1:] + paths[simple][:1], strict=True
        )
    ]
    return Observed.of(ratios, [abs(gap) for gap in null])


def _point(context: Context, specimen: Specimen) -> tuple[float, float]:
    curve = all_by_length(context, specimen)
    return math.log(loss_ratio(context, specimen)), math.log2(crossing(curve))


def matched_gap(
    first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]
) -> float:
    """Mean height of one path of (x, y) points above another, where both have x.

    Compared at the x of both paths' points inside the common range, y interpolated;
    nan if the ranges do not meet.

    >>> matched_gap([(0.0, 3.0), (2.0, 1.0)], [(0.0, 1.0), (2.0, 1.0)])
    1.0
    """
    low = max(min(x for x, _ in path) for path in (first, second))
    high = min(max(x for x, _ in path) for path in (first, second))
    places = sorted({x for x, _ in (*first, *second) if low <= x <= high})
    if not places:
        return math.nan
    return fmean(_height(first, x) - _height(second, x) for x in places)


def _height(path: Sequence[tuple[float, float]], x: float) -> float:
    points = sorted(path)
    for (left, y), (right, z) in pairwise(points):
        if left <= x <= right:
            share = 0.0 if right == left else (x - left) / (right - left)
            return y + share * (z - y)
    return points[0][1] if x <= points[0][0] else points[-1][1]


def _reported(context: Context) -> dict[str, Observed]:
    """Further groups, per-step accuracy at the largest length."""
    found = {}
    longest = context.config.lengths[-1]
    for group in context.config.extra_groups:
        trained = context.models(group)
        found[f"lego.extra.{action(group).slug.lower()}"] = Observed.of(
            each(trained, lambda s: context.curve(s)[longest].step),
            each(trained, lambda s: context.curve(uniform(s))[longest].step),
        )
    return found
