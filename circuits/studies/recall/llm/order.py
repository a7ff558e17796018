"""From which layer on is the relation told at the last token, and the answer?"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.models.language_model import LanguageModel, Readout
from probes.linear import LinearProbe, linear_probe

from .data import answer_tokens, name_tokens
from .facts import Relation
from .reading import Reading

CLEAR = 0.2
"""A property counts as readable if its best layer is this far above chance."""
PROBE_STRIDE = 2
"""Every second layer is probed."""


def first_layer(accuracy: Float[Tensor, " layer"], chance: float) -> float:
    """The first layer that passes half of the way from chance to the best layer.

    nan where no layer is clearly above chance.

    >>> first_layer(torch.tensor([0.25, 0.5, 0.7, 1.0]), 0.25)
    2.0
    """
    best = float(accuracy.max())
    if best < chance + CLEAR:
        return float("nan")
    passing = accuracy > (chance + best) / 2
    return float(passing.int().argmax())


def lasting_layer(accuracy: Float[Tensor, " layer"], chance: float) -> float:
    """The first layer from which on all pass half of the way from chance to the best.

    nan where no layer is clearly above chance, or the last one does not pass.

    >>> lasting_layer(torch.tensor([0.25, 0.9, 0.3, 1.0]), 0.25)
    3.0
    """
    best = float(accuracy.max())
    passing = accuracy > (chance + best) / 2
    if best < chance + CLEAR or not passing[-1]:
        return float("nan")
    return float(len(passing) - passing.flip(0).int().cumprod(0).sum())


@torch.no_grad()
def lens(
    readout: Readout,
    residuals: Float[Tensor, "layer example d_model"],
    tokens: Int[Tensor, " target"],
) -> Float[Tensor, "layer example target"]:
    """Log-probabilities of some tokens if the stream ended in a layer."""
    states = residuals.to(readout.unembedding.device)
    layers = [readout.logits(layer).log_softmax(-1)[:, tokens] for layer in states]
    return torch.stack(layers).cpu()


def relation_named(
    model: LanguageModel, reading: Reading, relations: Sequence[Relation]
) -> Float[Tensor, " layer"]:
    """Share of prompts whose relation's name stands out, by layer; chance 1 / number.

    A relation scores with its best name, less its mean score over the prompts with the
    same subjects and other relations: what the subjects or the layer favour in any case
    does not count.
    """
    names = [name_tokens(model, relation) for relation in relations]
    scores = torch.stack(
        [lens(model.readout, reading.residuals, own).amax(-1) for own in names], -1
    )
    group = _index([episode.group for episode in reading.episodes])
    contrast = scores - _group_means(scores, group)
    asked = _index([episode.relation for episode in reading.episodes])
    return (contrast.argmax(-1) == asked).double().mean(-1)


def answer_told(
    model: LanguageModel, reading: Reading, relations: Sequence[Relation]
) -> tuple[Float[Tensor, " layer"], float]:
    """Share of prompts whose right answer stands out, by layer, and its chance.

    Among the answers of the prompt's own relation, each less its mean over the prompts
    of that relation.
    """
    right, chance = [], 0.0
    for index, relation in enumerate(relations):
        own = _index([i for i, e in enumerate(reading.episodes) if e.relation == index])
        tokens = answer_tokens(model, relation)
        scores = lens(model.readout, reading.residuals[:, own], tokens)
        wanted = [
            relation.answers.index(reading.episodes[i].answers[-1])
            for i in own.tolist()
        ]
        contrast = scores - scores.mean(1, keepdim=True)
        right.append((contrast.argmax(-1) == _index(wanted)).double())
        chance += len(own) / (len(reading.episodes) * len(tokens))
    return torch.cat(right, 1).mean(1), chance


def relation_probes(
    first: Reading, second: Reading, seed: int
) -> dict[int, LinearProbe]:
    """A probe of the relation for every second layer.

    Args:
        first: prompts about some subjects.
        second: prompts about others; a probe is trained on one and tested on the other.
        seed: of which is which, and of the shuffled labels.
    """
    labels = _index([e.relation for e in (*first.episodes, *second.episodes)])
    groups = _index([0] * len(first.episodes) + [1] * len(second.episodes))
    states = torch.cat([first.residuals, second.residuals], 1)
    return {
        layer: linear_probe(
            states[layer], labels, groups=groups, test_share=0.5, seed=seed
        )
        for layer in range(0, len(states), PROBE_STRIDE)
    }


def first_probed(probes: dict[int, LinearProbe], chance: float) -> float:
    """`first_layer` of the probes' accuracies."""
    place = first_layer(torch.tensor([p.accuracy for p in probes.values()]), chance)
    return place if place != place else float(list(probes)[int(place)])


def _group_means(
    scores: Float[Tensor, "layer example relation"], group: Int[Tensor, " example"]
) -> Float[Tensor, "layer example relation"]:
    same = (group[:, None] == group).to(scores.dtype)
    return torch.einsum("eo,lor->ler", same / same.sum(1, keepdim=True), scores)


def _index(numbers: Sequence[int]) -> Int[Tensor, " example"]:
    return torch.tensor(list(numbers), dtype=torch.long)
