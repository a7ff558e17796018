"""Relations that share their answers: only the pairing of a prompt tells them apart."""

import random
from collections.abc import Sequence

import torch

from circuits.models.language_model import LanguageModel
from circuits.tally import Tally
from probes.linear import linear_probe

from . import causes
from .data import Episode, accuracy, episodes, single_tokens
from .facts import SHARED, Relation
from .reading import Reading, read

N_GROUPS = 3
"""Groups of prompts (the item after, the item before) for each list."""
N_PROBED_GROUPS = 12
"""The same for the probe."""
PROBED_LAYERS = 3
"""Every third layer is probed."""

Pair = Sequence[Relation]


def observe_shared(
    model: LanguageModel, seed: int, tally: Tally, *, probe: bool
) -> None:
    """Swapped answers, hidden subjects and, if asked for, the probe of the pairing."""
    source = random.Random(seed)
    pairs = [single_tokens(model, pair) for pair in SHARED]
    n_groups = N_PROBED_GROUPS if probe else N_GROUPS
    lists = [_episodes(pair, n_groups, source) for pair in pairs]
    few = [several[: N_GROUPS * 2] for several in lists]
    reading = read(model, [e for several in few for e in several])
    swapped = read(model, [e.swapped() for several in few for e in several])
    fall = _accuracy(model, reading, pairs) - _accuracy(model, swapped, pairs)
    tally.value("swap", fall)
    tally.both(
        "cut-binding",
        causes.loss_by_cut(model, reading, causes.OWN_SUBJECT),
        causes.loss_by_cut(model, reading, causes.EARLIER_SUBJECT),
    )
    if probe:
        permuted = [[e.swapped() for e in several] for several in lists]
        tally.both(
            "pairing-probe",
            pairing_probe(model, lists, seed),
            pairing_probe(model, permuted, seed),
        )


def pairing_probe(
    model: LanguageModel, lists: Sequence[Sequence[Episode]], seed: int
) -> float:
    """Accuracy of a probe of the relation at the last token, on unseen groups.

    The layer is the best one for every second list, the accuracy that for the others.
    """
    choose, judge = (
        read(model, [e for several in lists[i::2] for e in several]) for i in range(2)
    )
    layers = range(PROBED_LAYERS, len(choose.residuals), PROBED_LAYERS)
    best = max(layers, key=lambda layer: _probe(choose, layer, seed))
    return _probe(judge, best, seed)


def _probe(reading: Reading, layer: int, seed: int) -> float:
    labels = torch.tensor([e.relation for e in reading.episodes])
    # Groups are counted in each list by itself: a subject tells the lists apart.
    names = [(e.group, e.query) for e in reading.episodes]
    groups = torch.tensor([sorted(set(names)).index(name) for name in names])
    return linear_probe(
        reading.residuals[layer], labels, groups=groups, test_share=0.5, seed=seed
    ).accuracy


def _episodes(pair: Pair, n_groups: int, source: random.Random) -> list[Episode]:
    subjects = list(pair[0].facts)
    queries = source.sample(subjects, len(subjects))
    return episodes(pair, subjects, queries, n_groups, source)


def _accuracy(model: LanguageModel, reading: Reading, pairs: Sequence[Pair]) -> float:
    """Mean over the lists of the accuracy among a list's own answers."""
    size = len(reading.episodes) // len(pairs)
    parts = [slice(i * size, (i + 1) * size) for i in range(len(pairs))]
    right = [
        accuracy(model, reading.logits[part], reading.episodes[part], pair)
        for part, pair in zip(parts, pairs, strict=True)
    ]
    return sum(right) / len(right)
