"""The recall study's signals on a pretrained language model.

A seed divides the countries into two halves: heads and layers are chosen on prompts
about one, and the values come from prompts about the other.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from circuits.claims import Observed
from circuits.models.language_model import LanguageModel
from circuits.tally import Tally, undefined

from . import attention, causes, order
from .claims import CLAIMS
from .data import Episode, accuracy, episodes, known, single_tokens
from .facts import TYPED, Relation
from .reading import AT_ONCE, Reading, read
from .shared import observe_shared

N_GROUPS = 8
"""Groups of prompts (one for each relation) in a half."""
LEAST_KNOWN = 4
"""Countries that the model must know, two for each half."""
N_PATCHED = 7
"""The layer of the exchange is chosen among about so many."""


@dataclass(frozen=True)
class Read:
    """A model and what it made of prompts about two halves of the countries."""

    model: LanguageModel
    relations: tuple[Relation, ...]
    choose: Reading
    judge: Reading

    @property
    def accuracy(self) -> float:
        """Right answers among those of all relations."""
        return accuracy(
            self.model, self.judge.logits, self.judge.episodes, self.relations
        )

    def named(self) -> torch.Tensor:
        """Relations named, by layer."""
        return order.relation_named(self.model, self.judge, self.relations)


def observe(
    model: LanguageModel, twin: LanguageModel, seeds: Sequence[int]
) -> dict[str, Observed]:
    """Measure every claim; the twin has the same architecture and random weights."""
    relations = single_tokens(model, TYPED)
    queries = known(model, relations)
    if len(queries) < LEAST_KNOWN:
        return undefined(CLAIMS)
    tally = Tally("recall.llm.")
    layer = 0
    for seed in seeds:
        halves = _halves(relations, queries, random.Random(seed))
        typed = Read(model, relations, *(read(model, half) for half in halves))
        heads = _signals(typed, seed, tally)
        _causes(typed, tally)
        if seed == seeds[0]:
            judge = read(twin, halves[1])
            _null(Read(twin, relations, judge, judge), typed, heads, tally)
            layer = exchange_layer(typed)
        tally.both("patch-relation", *_moved(typed, layer))
        observe_shared(model, seed, tally, probe=seed == seeds[0])
    return tally.observed()


def _halves(
    relations: Sequence[Relation], queries: Sequence[str], source: random.Random
) -> list[list[Episode]]:
    """Prompts about two halves of the subjects; each half holds half of the queries."""
    asked = source.sample(list(queries), len(queries))
    rest = [s for s in relations[0].facts if s not in asked]
    rest = source.sample(rest, len(rest))
    return [
        episodes(relations, asked[i::2] + rest[i::2], asked[i::2], N_GROUPS, source)
        for i in range(2)
    ]


def _signals(typed: Read, seed: int, tally: Tally) -> attention.Heads:
    """What is read without touching the model; returns the heads that bind."""
    tally.value("few-shot", typed.accuracy)
    named, even = typed.named(), 1 / len(typed.relations)
    told, chance = order.answer_told(typed.model, typed.judge, typed.relations)
    answer = order.first_layer(told, chance)
    tally.value("relation-lens", answer - order.first_layer(named, even))
    tally.value(
        "relation-lens-lasting",
        order.lasting_layer(told, chance) - order.lasting_layer(named, even),
    )
    probes = order.relation_probes(typed.choose, typed.judge, seed)
    best = max(probes.values(), key=lambda probe: probe.accuracy)
    tally.both(
        "relation-probe",
        answer - order.first_probed(probes, even),
        best.control_accuracy,
    )
    tally.both("pair-coherence", *attention.paired(typed.choose, typed.judge))
    tally.both("pair-balance", *attention.balance(typed.choose, typed.judge))
    tally.both(
        "pair-coherence-content",
        *attention.paired_by_content(typed.choose, typed.judge),
    )
    heads = attention.binding_heads(typed.choose)
    tally.value("binding", attention.binding(typed.judge, heads))
    return heads


def _null(null: Read, typed: Read, heads: attention.Heads, tally: Tally) -> None:
    """The same with random weights."""
    tally.control("few-shot", null.accuracy)
    by_chance = float(null.named()[typed.named().argmax()])
    tally.control("relation-lens", by_chance)
    tally.control("relation-lens-lasting", by_chance)
    tally.control("binding", attention.binding(null.judge, heads))


def _causes(typed: Read, tally: Tally) -> None:
    model, reading = typed.model, typed.judge
    subjects, answers, separators = (
        causes.loss_by_cut(model, reading, cut)
        for cut in (causes.SUBJECTS, causes.ANSWERS, causes.SEPARATORS)
    )
    tally.both("cut-subjects", subjects / answers, separators / answers)
    swapped = read(model, [episode.swapped() for episode in reading.episodes])
    tally.control("swap", typed.accuracy - replace(typed, judge=swapped).accuracy)


def exchange_layer(typed: Read) -> int:
    """The number of blocks after which an exchange moves the relation most often."""
    several, relations = typed.choose.episodes, typed.relations
    cases = causes.exchange(typed.model, several, relations, shift=1)
    some = cases.part(slice(None, AT_ONCE))
    n_layers = typed.model.n_layers
    layers = range(1, n_layers, max(1, n_layers // N_PATCHED))
    return max(
        layers,
        key=lambda layer: causes.follows_donor(typed.model, typed.choose, some, layer),
    )


def _moved(typed: Read, layer: int) -> tuple[float, float]:
    """How often the relation moves with the residual, from another one and the same."""
    moved, stayed = (
        causes.follows_donor(
            typed.model,
            typed.judge,
            causes.exchange(
                typed.model, typed.judge.episodes, typed.relations, shift=shift
            ),
            layer,
        )
        for shift in (1, 0)
    )
    return moved, stayed
