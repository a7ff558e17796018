"""Does the last token weigh the two words of a demonstration alike?"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from probes.attention import pair_coherence, pair_coherence_null

from .reading import Reading

LEAST_MASS = 0.05
"""Heads that give all demonstrations together less than this are left out."""
N_BEST = 3
"""Heads that are chosen on some prompts and judged on others."""

Heads = list[tuple[int, int]]
"""(layer, head)"""


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


def looking(reading: Reading) -> Bool[Tensor, "layer head"]:
    """Heads whose last token looks at the demonstrations at all."""
    mass = (reading.to_subjects + reading.to_answers).sum(-1).mean(1)
    return mass >= LEAST_MASS


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


def paired(choose: Reading, judge: Reading) -> tuple[float, float]:
    """Coherence of the best heads, chosen on some prompts and judged on others.

    Returns:
        Their coherence, and that with the answers moved to other pairs.
    """
    heads = best_heads(coherence(*demonstration_shares(choose)), looking(choose))
    shares = demonstration_shares(judge)
    return mean_over(coherence(*shares), heads), mean_over(
        largest_shifted(*shares), heads
    )


def balance(choose: Reading, judge: Reading) -> tuple[float, float]:
    """How unequal the two shares of a pair are in the heads of `paired`, at least 1.

    Returns:
        exp(mean over prompts and pairs of |log S_i - log A_i|), and the smallest of the
        same with the answers moved to other pairs.
    """
    heads = best_heads(coherence(*demonstration_shares(choose)), looking(choose))
    subjects, answers = (shares.log() for shares in demonstration_shares(judge))
    gaps = [
        (subjects - answers.roll(shift, -1)).abs().mean((1, 3))
        for shift in range(subjects.shape[-1])
    ]
    own, *shifted = [mean_over(gap, heads) for gap in gaps]
    return math.exp(own), math.exp(min(shifted))


def paired_by_content(choose: Reading, judge: Reading) -> tuple[float, float]:
    """`paired` for what differs between prompts, so that no liking of places counts."""
    chosen = map(without_places, demonstration_shares(choose))
    heads = best_heads(coherence(*chosen), looking(choose))
    subjects, answers = map(without_places, demonstration_shares(judge))
    return mean_over(coherence(subjects, answers), heads), mean_over(
        largest_shifted(subjects, answers), heads
    )


def binding_heads(reading: Reading) -> Heads:
    """Heads in which answers look at their own subject most."""
    scores = reading.own_subject.mean(1)
    return best_heads(scores, torch.ones_like(scores, dtype=torch.bool))


def binding(reading: Reading, heads: Heads) -> float:
    """How much more answers look at their own subject, mean of some heads."""
    return mean_over(reading.own_subject.mean(1), heads)


def best_heads(
    scores: Float[Tensor, "layer head"], allowed: Bool[Tensor, "layer head"]
) -> Heads:
    """The heads with the largest scores among those allowed."""
    ranked = scores.masked_fill(~allowed, -torch.inf).flatten().argsort(descending=True)
    n_heads = scores.shape[1]
    return [divmod(int(place), n_heads) for place in ranked[:N_BEST]]


def mean_over(scores: Float[Tensor, "layer head"], heads: Heads) -> float:
    """The mean score of some heads."""
    return float(torch.stack([scores[place] for place in heads]).mean())
