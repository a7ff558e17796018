"""The symbols study's signals on a pretrained language model.

The marker before the output and the matching head are chosen on programs of their own;
a seed draws the names and values of those that are judged.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from circuits.interventions.head_matrices import Circuit
from circuits.models.language_model import LanguageModel
from circuits.tally import Tally

from . import weights
from .data import Program, Words, programs, with_strangers, words_of
from .programs import Printed, best_marker, emitted, run
from .surgery import Patient

N_DRAWS = 12
"""Random programs of each kind of words; every one is printed twice."""
N_CUT = 12
"""How many of the printed programs are run again for each surgery."""
N_CHOOSE = 12
"""Random programs that markers and heads are chosen on."""
CHOOSING_SEED = 10_007
"""Draws the programs to choose on."""
COMPETENT = 0.75
"""Accuracy below which rare words are not compared with frequent ones."""
CIRCUITS: tuple[Circuit, ...] = ("qk", "ov")

Scores = Mapping[Circuit, Float[Tensor, "layer head"]]


@dataclass(frozen=True)
class Chosen:
    """What was settled on programs that are not judged."""

    words: Words
    marker: str
    sign_marker: str
    head: tuple[int, int]


@dataclass(frozen=True)
class Drawn:
    """The programs of one seed."""

    frequent: list[Program]
    rare: list[Program]
    strangers: list[Program]

    @property
    def all(self) -> list[Program]:
        """Programs of both kinds, frequent words first."""
        return [*self.frequent, *self.rare]


def observe(
    model: LanguageModel, twin: LanguageModel, seeds: Sequence[int]
) -> dict[str, Observed]:
    """Measure every claim; the twin has the same architecture and random weights."""
    tally = Tally("symbols.llm.")
    scores, null = (
        {circuit: weights.diagonal_scores(m, circuit) for circuit in CIRCUITS}
        for m in (model, twin)
    )
    _weights(model, twin, scores, null, tally)
    chosen = choose(model)
    for seed in seeds:
        drawn = draw(chosen.words, seed)
        printed = run(model, drawn.all, form="values", marker=chosen.marker)
        _matching(model, chosen, drawn, printed, tally)
        tally.value(
            "diagonal-and-matching",
            weights.correlation(scores["qk"], printed.matching.mean(1)),
        )
        _behaviour(model, chosen, drawn, printed, tally)
        repeated = run(model, drawn.all, form="repeated", marker="")
        _repeated(repeated, tally)
        _surgeries(_patient(model, drawn, repeated), scores, seed, tally)
    _null_behaviour(twin, chosen, draw(chosen.words, seeds[0]), null, tally)
    return tally.observed()


def choose(model: LanguageModel) -> Chosen:
    """Markers and the matching head, from programs that are not judged."""
    words = words_of(model)
    several = programs(words.frequent, N_CHOOSE, random.Random(CHOOSING_SEED))
    marker, printed = best_marker(model, several, "values")
    sign_marker, _ = best_marker(model, several, "signs")
    matching = printed.matching.mean(1)
    head = divmod(int(matching.argmax()), matching.shape[1])
    return Chosen(words, marker, sign_marker, head)


def draw(words: Words, seed: int) -> Drawn:
    """The programs of a seed."""
    source = random.Random(seed)
    frequent = programs(words.frequent, N_DRAWS, source)
    rare = programs(words.rare, N_DRAWS, source)
    return Drawn(frequent, rare, with_strangers(frequent, words.frequent, source))


def _weights(
    model: LanguageModel,
    twin: LanguageModel,
    scores: Scores,
    null: Scores,
    tally: Tally,
) -> None:
    for circuit in CIRCUITS:
        strong, by_chance = (
            weights.share_above(own[circuit], weights.STRONG) for own in (scores, null)
        )
        tally.both(f"{circuit}-diagonal", strong, by_chance)
    copying, by_chance = (
        weights.share_above(weights.copying_scores(m), weights.COPIES)
        for m in (model, twin)
    )
    tally.both("copying-heads", copying, by_chance)


def _matching(
    model: LanguageModel, chosen: Chosen, drawn: Drawn, printed: Printed, tally: Tally
) -> None:
    strange = run(model, drawn.strangers, form="values", marker=chosen.marker)
    tally.both(
        "matching-head",
        float(printed.matching.mean(1)[chosen.head]),
        float(strange.matching.mean(1)[chosen.head]),
    )


def _behaviour(
    model: LanguageModel, chosen: Chosen, drawn: Drawn, printed: Printed, tally: Tally
) -> None:
    tally.value("program-values", printed.accuracy)
    signs = run(model, drawn.frequent, form="signs", marker=chosen.sign_marker)
    tally.value("program-signs", signs.accuracy)
    # Both programs of a draw have the same two values.
    others = drawn.all[2:] + drawn.all[:2]
    tally.both(
        "emission",
        float(emitted(model, printed, drawn.all).double().mean()),
        float(emitted(model, printed, others).double().mean()),
    )


def _repeated(repeated: Printed, tally: Tally) -> None:
    tally.value("repeated-values", repeated.accuracy)
    right = (repeated.difference > 0).double()
    frequent, rare = right[: 2 * N_DRAWS], right[2 * N_DRAWS :]
    if float(frequent.mean()) < COMPETENT:
        tally.both("rare-names", float("nan"), float("nan"))
        return
    tally.both(
        "rare-names",
        float(frequent.mean() - rare.mean()),
        float(frequent[:N_DRAWS].mean() - frequent[N_DRAWS:].mean()),
    )


def _patient(model: LanguageModel, drawn: Drawn, repeated: Printed) -> Patient:
    """Some of the programs, frequent and rare words apart."""
    first = 2 * N_DRAWS
    kinds = [
        (drawn.frequent[:N_CUT], repeated.difference[:N_CUT]),
        (drawn.rare[:N_CUT], repeated.difference[first : first + N_CUT]),
    ]
    return Patient(model, kinds)


def _surgeries(patient: Patient, scores: Scores, seed: int, tally: Tally) -> None:
    own, control = (
        torch.stack([patient.lost(scores[c], c, rotation) for c in CIRCUITS])
        for rotation in (None, seed)
    )
    for row, circuit in enumerate(CIRCUITS):
        name = f"remove-{circuit}-identity"
        tally.both(name, float(own[row].mean()), float(control[row].mean()))
    frequent, rare = own.mean(0).tolist()
    turned_frequent, turned_rare = control.mean(0).tolist()
    tally.both("remove-identity-rare", rare - frequent, turned_rare - turned_frequent)


def _null_behaviour(
    twin: LanguageModel, chosen: Chosen, drawn: Drawn, null: Scores, tally: Tally
) -> None:
    """The same with random weights, first seed only."""
    printed = run(twin, drawn.all, form="values", marker=chosen.marker)
    signs = run(twin, drawn.frequent, form="signs", marker=chosen.sign_marker)
    tally.control("program-values", printed.accuracy)
    tally.control("program-signs", signs.accuracy)
    repeated = run(twin, drawn.all, form="repeated", marker="")
    tally.control("repeated-values", repeated.accuracy)
    tally.control(
        "diagonal-and-matching",
        weights.correlation(null["qk"], printed.matching.mean(1)),
    )
