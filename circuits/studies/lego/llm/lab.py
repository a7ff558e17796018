"""The lego study's signals on a pretrained language model.

Heads are chosen on chains of their own, of length 4; a seed draws the chains that are
judged.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from circuits.claims import Observed
from circuits.models.language_model import LanguageModel
from circuits.tally import Tally

from .causes import due, hide_predicates, not_due, sharpen
from .clauses import Heads, Looks, Steps, best_heads, look, mean_over, say
from .data import Exercise, exercises
from .dilution import prediction_errors

SHORTEST, SHORT, LONG = 2, 4, 16
"""Lengths of the chains; heads are chosen at the second."""
N_CHAINS = {SHORTEST: 4, SHORT: 6, LONG: 2}
"""Chains of each length for a seed."""
N_HIDDEN = 4
"""Of the chains of length 4, how many are run again with predicates hidden."""
CHOOSING_SEED = 10_007
"""Draws the chains to choose heads on."""


@dataclass(frozen=True)
class Chosen:
    """Heads that look at the due predicate, and at the last answer."""

    predicate: Heads
    answer: Heads


def observe(
    model: LanguageModel, twin: LanguageModel, seeds: Sequence[int]
) -> dict[str, Observed]:
    """Measure every claim; the twin has the same architecture and random weights."""
    tally = Tally("lego.llm.")
    chosen = choose(model)
    for seed in seeds:
        source = random.Random(seed)
        drawn = {n: exercises("C3", n, N_CHAINS[n], source) for n in N_CHAINS}
        said, looks = look(model, drawn[SHORT])
        tally.value("step-accuracy", said.accuracy)
        if seed == seeds[0]:
            tally.control("step-accuracy", say(twin, drawn[SHORT]).accuracy)
        said_long, looks_long = look(model, drawn[LONG])
        _clauses(chosen, looks, looks_long, tally)
        _group(model, drawn[SHORTEST], said_long, source, tally)
        _knock_outs(model, chosen, drawn[SHORT][:N_HIDDEN], source, tally)
        _sharpening(model, chosen, drawn[LONG], said_long, source, tally)
    return tally.observed()


def choose(model: LanguageModel) -> Chosen:
    """The best heads on chains that are not judged."""
    source = random.Random(CHOOSING_SEED)
    _, looks = look(model, exercises("C3", SHORT, N_CHAINS[SHORT], source))
    return Chosen(best_heads(looks.predicate), best_heads(looks.answer))


def _clauses(chosen: Chosen, looks: Looks, looks_long: Looks, tally: Tally) -> None:
    tally.both(
        "predicate-mass",
        mean_over(looks.predicate, chosen.predicate),
        mean_over(looks.other_predicate, chosen.predicate),
    )
    # The first step has no earlier answer.
    tally.both(
        "answer-mass",
        mean_over(looks.answer, chosen.answer, first=2),
        mean_over(looks.other_answer, chosen.answer, first=2),
    )
    short, long = (
        torch.tensor(
            [1 - mean_over(seen.predicate, [head]) for head in chosen.predicate]
        )
        for seen in (looks, looks_long)
    )
    errors = prediction_errors(short, long, short_length=SHORT, long_length=LONG)
    tally.both("dilution", *errors)


def _group(
    model: LanguageModel,
    shortest: Sequence[Exercise],
    said_long: Steps,
    source: random.Random,
    tally: Tally,
) -> None:
    cyclic = {SHORTEST: say(model, shortest), LONG: said_long}
    gap = {
        n: said.accuracy - say(model, exercises("S3", n, N_CHAINS[n], source)).accuracy
        for n, said in cyclic.items()
    }
    tally.both("group", gap[LONG], gap[SHORTEST])


def _knock_outs(
    model: LanguageModel,
    chosen: Chosen,
    several: Sequence[Exercise],
    source: random.Random,
    tally: Tally,
) -> None:
    whole = say(model, several).log_prob
    others = not_due(SHORT, source)
    for name, heads in (("knock-out", None), ("knock-out-heads", chosen.predicate)):
        lost, control = (
            whole - say(model, several, hide_predicates(hidden, heads)).log_prob
            for hidden in (due(SHORT), others)
        )
        tally.both(name, lost, control)


def _sharpening(
    model: LanguageModel,
    chosen: Chosen,
    several: Sequence[Exercise],
    said: Steps,
    source: random.Random,
    tally: Tally,
) -> None:
    heads = list(dict.fromkeys([*chosen.predicate, *chosen.answer]))
    every = itertools.product(range(model.n_layers), range(model.n_heads))
    rest = [head for head in every if head not in heads]
    others = source.sample(rest, min(len(heads), len(rest)))
    gain, control = (
        say(model, several, sharpen(some)).accuracy - said.accuracy
        for some in (heads, others)
    )
    tally.both("sharpening", gain, control)
