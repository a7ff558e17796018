"""What is kept of a pass over few-shot prompts, and the signals that are read off it.

Does the last token weigh the two words of a demonstration alike? From which layer on is
the relation told there, and the answer?
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.hooks import record
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from probes.attention import attention_mass, pair_coherence, pair_coherence_null
from probes.lens import logit_lens
from probes.linear import LinearProbe, linear_probe
from trained.task import Batch

from .data import Episode, answer_tokens, name_tokens, written
from .rows import Relation
from .settings import Settings

Heads = list[tuple[int, int]]
"""(layer, head)"""


@dataclass(frozen=True)
class Reading:
    """One pass over some episodes.

    Attributes:
        episodes: what was read.
        residuals: the residual stream at the last token, by the number of blocks
            behind it.
        logits: the next token's logits.
        to_subjects: attention of the last token to the subject of each demonstration.
        to_answers: the same to the answers.
        own_subject: attention of an answer to its own subject minus the mean to earlier
            subjects, mean over the answers that have any.
    """

    episodes: tuple[Episode, ...]
    residuals: Float[Tensor, "depth example d_model"]
    logits: Float[Tensor, "example d_vocab"]
    to_subjects: Float[Tensor, "layer example head pair"]
    to_answers: Float[Tensor, "layer example head pair"]
    own_subject: Float[Tensor, "layer example head"]


@torch.no_grad()
def read(model: LanguageModel, several: Sequence[Episode], size: int) -> Reading:
    """Run the model on episodes, `size` at once, and keep what the signals need."""
    parts = [
        _read(model, written(model, several[start : start + size]))
        for start in range(0, len(several), size)
    ]
    residuals, logits, subjects, answers, binding = zip(*parts, strict=True)
    return Reading(
        tuple(several),
        torch.cat(residuals, 1),
        torch.cat(logits),
        torch.cat(subjects, 1),
        torch.cat(answers, 1),
        torch.cat(binding, 1),
    )


def _read(model: LanguageModel, prompts: Batch) -> tuple[Tensor, ...]:
    layers = range(model.n_layers)
    states = [Site("resid_pre"), *(Site("resid_post", layer) for layer in layers)]
    patterns = [Site("pattern", layer) for layer in layers]
    with record(model, [*states, *patterns]) as seen:
        logits = model(prompts.tokens, prompts.mask)
    rows = torch.arange(len(prompts.targets), device=logits.device)
    last = [seen[site][rows, prompts.last] for site in states]
    looks = [last_looks(seen[site], prompts) for site in patterns]
    return (
        torch.stack(last).cpu(),
        logits[rows, prompts.last].cpu(),
        torch.stack([subjects for subjects, _ in looks]).cpu(),
        torch.stack([answers for _, answers in looks]).cpu(),
        torch.stack([own_subject(seen[site], prompts) for site in patterns]).cpu(),
    )


def last_looks(
    pattern: Float[Tensor, "batch head query key"], prompts: Batch
) -> tuple[Float[Tensor, "batch head pair"], Float[Tensor, "batch head pair"]]:
    """Attention of the last token to the subjects and to the answers, spans summed."""
    rows = torch.arange(len(pattern), device=pattern.device)
    looks = pattern[rows, :, prompts.last]
    subjects, answers = (
        torch.stack(
            [
                attention_mass(looks, prompts.role(f"{name}{i}")[:, None])
                for i in range(_n_pairs(prompts))
            ],
            -1,
        )
        for name in ("subject", "answer")
    )
    return subjects, answers


def own_subject(
    pattern: Float[Tensor, "batch head query key"], prompts: Batch
) -> Float[Tensor, "batch head"]:
    """Attention of an answer to its subject beyond that to earlier ones, in [-1, 1].

    Mean over answers i > 0 of A[a_i, s_i] - mean over j < i of A[a_i, s_j], from the
    last token of the answer.
    """
    rows = torch.arange(len(pattern), device=pattern.device)
    excess = []
    for i in range(1, _n_pairs(prompts)):
        looks = pattern[rows, :, prompts.role(f"answer{i}")[:, -1]]
        to = [
            attention_mass(looks, prompts.role(f"subject{j}")[:, None])
            for j in range(i + 1)
        ]
        excess.append(to[i] - torch.stack(to[:i]).mean(0))
    return torch.stack(excess).mean(0)


def _n_pairs(prompts: Batch) -> int:
    """How many demonstrations the prompts have."""
    return sum(f"subject{i}" in prompts.roles for i in range(len(prompts.roles)))


def demonstration_shares(
    reading: Reading,
) -> tuple[
    Float[Tensor, "layer example head pair"], Float[Tensor, "layer example head pair"]
]:
    """Attention to subjects and answers, rescaled to sum to one over all of them."""
    total = (reading.to_subjects + reading.to_answers).sum(-1, keepdim=True)
    total = total.clamp(min=torch.finfo(total.dtype).tiny)
    return reading.to_subjects / total, reading.to_answers / total


def without_places(
    shares: Float[Tensor, "layer example head pair"],
) -> Float[Tensor, "layer example head pair"]:
    """What differs between prompts: shares less their mean over prompts."""
    return shares - shares.mean(1, keepdim=True)


def coherent_heads(
    reading: Reading, settings: Settings, *, by_content: bool = False
) -> Heads:
    """The heads that weigh pairs most alike, of those that look at them at all."""
    shares = demonstration_shares(reading)
    if by_content:
        shares = without_places(shares[0]), without_places(shares[1])
    mass = (reading.to_subjects + reading.to_answers).sum(-1).mean(1)
    allowed = mass >= settings.least_mass
    return best_heads(coherence(*shares), allowed, settings.heads)


def coherence(
    subjects: Float[Tensor, "layer example head pair"],
    answers: Float[Tensor, "layer example head pair"],
) -> Float[Tensor, "layer head"]:
    """Correlation over pairs of the two shares, mean over prompts, in [-1, 1]."""
    return pair_coherence(subjects, answers).mean(1)


def largest_shifted(
    subjects: Float[Tensor, "layer example head pair"],
    answers: Float[Tensor, "layer example head pair"],
) -> Float[Tensor, "layer head"]:
    """The same with answers moved to other pairs: the largest of the shifts' means."""
    return pair_coherence_null(subjects, answers).mean(1).amax(-1)


def paired(
    reading: Reading, heads: Heads, *, by_content: bool = False
) -> tuple[float, float]:
    """Coherence of some heads, chosen on other prompts.

    Args:
        reading: what is judged.
        heads: the heads.
        by_content: take what differs between prompts, so that no liking of places
            counts.

    Returns:
        Their coherence, and that with the answers moved to other pairs.
    """
    shares = demonstration_shares(reading)
    if by_content:
        shares = without_places(shares[0]), without_places(shares[1])
    own, shifted = coherence(*shares), largest_shifted(*shares)
    return mean_over(own, heads), mean_over(shifted, heads)


def balance(reading: Reading, heads: Heads) -> tuple[float, float]:
    """How unequal the two shares of a pair are in some heads, at least 1.

    Returns:
        exp(mean over prompts and pairs of |log S_i - log A_i|), and the smallest of the
        same with the answers moved to other pairs.
    """
    subjects, answers = (shares.log() for shares in demonstration_shares(reading))
    gaps = [
        (subjects - answers.roll(shift, -1)).abs().mean((1, 3))
        for shift in range(subjects.shape[-1])
    ]
    own, *shifted = [mean_over(gap, heads) for gap in gaps]
    return math.exp(own), math.exp(min(shifted))


def binding_heads(reading: Reading, settings: Settings) -> Heads:
    """Heads in which answers look at their own subject most."""
    scores = reading.own_subject.mean(1)
    everywhere = torch.ones_like(scores, dtype=torch.bool)
    return best_heads(scores, everywhere, settings.heads)


def binding(reading: Reading, heads: Heads) -> float:
    """How much more answers look at their own subject, mean of some heads."""
    return mean_over(reading.own_subject.mean(1), heads)


def best_heads(
    scores: Float[Tensor, "layer head"],
    allowed: Bool[Tensor, "layer head"],
    count: int,
) -> Heads:
    """The heads with the largest scores among those allowed."""
    ranked = scores.masked_fill(~allowed, -torch.inf).flatten().argsort(descending=True)
    n_heads = scores.shape[1]
    return [divmod(int(place), n_heads) for place in ranked[:count]]


def mean_over(scores: Float[Tensor, "layer head"], heads: Heads) -> float:
    """The mean score of some heads."""
    return float(torch.stack([scores[place] for place in heads]).mean())


def first_layer(
    accuracy: Float[Tensor, " layer"], chance: float, clear: float = 0.2
) -> float:
    """The first layer that passes half of the way from chance to the best layer.

    nan where no layer is so clearly above chance.

    >>> first_layer(torch.tensor([0.25, 0.5, 0.7, 1.0]), 0.25)
    2.0
    """
    best = float(accuracy.max())
    if best < chance + clear:
        return float("nan")
    passing = accuracy > (chance + best) / 2
    return float(passing.int().argmax())


def lasting_layer(
    accuracy: Float[Tensor, " layer"], chance: float, clear: float = 0.2
) -> float:
    """The first layer from which on all pass half of the way from chance to the best.

    nan where no layer is clearly above chance, or the last one does not pass.

    >>> lasting_layer(torch.tensor([0.25, 0.9, 0.3, 1.0]), 0.25)
    3.0
    """
    best = float(accuracy.max())
    passing = accuracy > (chance + best) / 2
    if best < chance + clear or not passing[-1]:
        return float("nan")
    return float(len(passing) - passing.flip(0).int().cumprod(0).sum())


@torch.no_grad()
def lens(
    model: LanguageModel,
    residuals: Float[Tensor, "layer example d_model"],
    tokens: Int[Tensor, " target"],
) -> Float[Tensor, "layer example target"]:
    """Log-probabilities of some tokens if the stream ended in a layer."""
    states = residuals.to(model.device)
    return logit_lens(states, model.readout.logits, tokens).cpu()


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
        [lens(model, reading.residuals, own).amax(-1) for own in names], -1
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
        scores = lens(model, reading.residuals[:, own], tokens)
        wanted = [
            relation.answers.index(reading.episodes[i].answers[-1])
            for i in own.tolist()
        ]
        contrast = scores - scores.mean(1, keepdim=True)
        right.append((contrast.argmax(-1) == _index(wanted)).double())
        chance += len(own) / (len(reading.episodes) * len(tokens))
    return torch.cat(right, 1).mean(1), chance


def relation_probes(
    first: Reading, second: Reading, stride: int, seed: int
) -> dict[int, LinearProbe]:
    """A probe of the relation for every so many layers.

    Args:
        first: prompts about some subjects.
        second: prompts about others; a probe is trained on one and tested on the other.
        stride: how many.
        seed: of which is which, and of the shuffled labels.
    """
    labels = _index([e.relation for e in (*first.episodes, *second.episodes)])
    groups = _index([0] * len(first.episodes) + [1] * len(second.episodes))
    states = torch.cat([first.residuals, second.residuals], 1)
    return {
        layer: linear_probe(
            states[layer], labels, groups=groups, test_share=0.5, seed=seed
        )
        for layer in range(0, len(states), stride)
    }


def pairing_probe(reading: Reading, layer: int, seed: int) -> float:
    """Accuracy of a probe of the relation at the last token, on unseen groups."""
    labels = _index([e.relation for e in reading.episodes])
    # Groups are counted in each list by itself: a subject tells the lists apart.
    names = [(e.group, e.query) for e in reading.episodes]
    groups = _index([sorted(set(names)).index(name) for name in names])
    return linear_probe(
        reading.residuals[layer], labels, groups=groups, test_share=0.5, seed=seed
    ).accuracy


def _group_means(
    scores: Float[Tensor, "layer example relation"], group: Int[Tensor, " example"]
) -> Float[Tensor, "layer example relation"]:
    same = (group[:, None] == group).to(scores.dtype)
    return torch.einsum("eo,lor->ler", same / same.sum(1, keepdim=True), scores)


def _index(numbers: Sequence[int]) -> Int[Tensor, " example"]:
    return torch.tensor(list(numbers), dtype=torch.long)
