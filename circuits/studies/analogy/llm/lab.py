"""The analogy study's signals on a pretrained language model.

A seed draws the facts, the exchange of their categories and the order of fine-tuning.
"""

import random
from collections.abc import Sequence

from circuits.claims import Observed
from circuits.models.language_model import LanguageModel
from circuits.models.tuned import fine_tuned
from circuits.tally import Tally
from trained.analogy.facts import Fact, permuted_categories

from .data import AS, JOINT, PERMUTED, SA, draw, lists
from .reading import alignment, read

N_FACTS = 12
"""Facts that a seed fine-tunes on."""
N_ALIGNED = 32
"""Facts whose subjects are compared without fine-tuning; as many choose the layer."""


def observe(
    model: LanguageModel, twin: LanguageModel, seeds: Sequence[int]
) -> dict[str, Observed]:
    """Measure every claim; the twin has the same architecture and random weights."""
    tally = Tally("analogy.llm.")
    for seed in seeds:
        source = random.Random(seed)
        facts = draw(model, N_FACTS, source)
        _curricula(model, facts, seed, tally)
        _permuted(model, permuted_categories(facts, generator=source), seed, tally)
        _alignment(model, twin, source, tally)
    return tally.observed()


def _curricula(
    model: LanguageModel, facts: Sequence[Fact], seed: int, tally: Tally
) -> None:
    """Before fine-tuning, and after it in three orders."""
    sentences = lists(model, facts)
    before = read(model, facts)
    joint, late, early = (
        read(fine_tuned(model, curriculum, sentences, seed), facts)
        for curriculum in (JOINT, SA, AS)
    )
    tally.both("joint", joint.second, before.second)
    tally.both("SA", late.second, before.second)
    tally.both("order", (joint.second + late.second) / 2 - early.second, early.first)
    for name, after, against in (
        ("similarity-order", joint.similarity, early.similarity),
        ("sparse-order", joint.sparse, early.sparse),
    ):
        tally.both(name, after[0] - against[0], after[1] - against[1])


def _permuted(
    model: LanguageModel, facts: Sequence[Fact], seed: int, tally: Tally
) -> None:
    trained = fine_tuned(model, PERMUTED, lists(model, facts), seed)
    tally.both("permuted", read(trained, facts).second, read(model, facts).second)


def _alignment(
    model: LanguageModel, twin: LanguageModel, source: random.Random, tally: Tally
) -> None:
    several = draw(model, 2 * N_ALIGNED, source)
    halves = several[0::2], several[1::2]
    own, shifted = alignment(model, *halves)
    tally.both("alignment", own, shifted)
    null, null_shifted = alignment(twin, *halves)
    tally.both("alignment-twin", own - shifted, null - null_shifted)
