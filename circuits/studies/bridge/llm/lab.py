"""The bridge study's signals on a pretrained language model.

A seed draws some landmarks and their order: which ones choose layers and which ones are
judged, who lends its object or its name as a control, and the order of fine-tuning.
"""

import random
from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor

from circuits.claims import Observed
from circuits.models.language_model import LanguageModel
from circuits.models.tuned import fine_tuned
from circuits.tally import Tally, undefined

from . import answers, layers
from .claims import CLAIMS
from .data import PLAIN, WITH_IDENTITY, single_hops, start, usable
from .facts import Place

LEAST_PLACES = 12
"""With fewer landmarks of single tokens nothing is measured."""
N_PLACES = 12
"""Landmarks that a seed draws for fine-tuning; layers are judged on all."""


def observe(
    model: LanguageModel, twin: LanguageModel, seeds: Sequence[int]
) -> dict[str, Observed]:
    """Measure every claim; the twin has the same architecture and random weights."""
    known = usable(model)
    if len(known) < LEAST_PLACES:
        return undefined(CLAIMS)
    tally = Tally("bridge.llm.")
    for seed in seeds:
        several = random.Random(seed).sample(known, len(known))
        _fine_tuning(model, several[:N_PLACES], seed, tally)
        tally.value("bridge-rank", layers.bridge_rank(model, several))
        tally.both("alignment", *layers.alignment(model, several))
        if seed == seeds[0]:
            _null(twin, several, tally)
    return {**undefined(CLAIMS), **tally.observed()}


def _fine_tuning(
    model: LanguageModel, several: Sequence[Place], seed: int, tally: Tally
) -> None:
    """Before and after fine-tuning on single hops, with and without identity facts."""
    facts = single_hops(several, start(model))
    before = answers.omitted(model, several)
    tally.value("omit", before.excess)
    plain = fine_tuned(model, PLAIN, facts, seed)
    after, hops = answers.omitted(plain, several), answers.two_hop(plain, several)
    single = answers.one_hop(plain, several)
    tally.value("one-hop", single)
    tally.both("two-hop", hops.accuracy, float(hops.swapped.double().mean()))

    rise, lent = answers.rise(before, after), answers.lent_rise(before, after)
    tally.both("omit-shift", float(rise.mean()), float(lent.mean()))
    note_subset(rise, lent, hops.right, tally)
    same = fine_tuned(model, WITH_IDENTITY, facts, seed)
    tally.both(
        "identity",
        answers.two_hop(same, several).accuracy - hops.accuracy,
        answers.one_hop(same, several) - single,
    )


def note_subset(
    rise: Float[Tensor, " question"],
    lent: Float[Tensor, " question"],
    right: Bool[Tensor, " question"],
    tally: Tally,
) -> None:
    """Right against wrong questions; a seed without one of them says nothing."""
    if 0 < int(right.sum()) < len(right):
        values = (answers.difference(gained, right) for gained in (rise, lent))
        tally.both("omit-shift.subset", *values)


def _null(twin: LanguageModel, several: Sequence[Place], tally: Tally) -> None:
    """The same with random weights."""
    tally.control("one-hop", answers.one_hop(twin, several[:N_PLACES]))
    tally.control("omit", answers.omitted(twin, several[:N_PLACES]).excess)
    tally.control("bridge-rank", layers.bridge_rank(twin, several))
