"""Gradients of the exact loss in closed form, two examples: Algorithm 1 step by step.

A dozen small operations, where autograd and an optimiser take a hundred. Tests compare
them with autograd.
"""

from functools import cache

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor
from torch.nn.functional import one_hot

from .theory import RIGHT_OF_TWO, matchings, quadratic_forms, relation_logits


@cache
def _pairings(
    dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "pattern 6"], Float[Tensor, "6 key"], Float[Tensor, "6 key"]]:
    """Which (subject, answer) pairs a pattern has, beyond the right one's, and where.

    Returns:
        For each pattern, 2 for a pair that it has minus 2 for one that the right
        pattern has; for each pair, the places of its subject and of its answer.
    """
    pairs = [(i, j) for i in range(3) for j in range(2)]
    has = torch.tensor([[p in pattern for p in pairs] for pattern in matchings(2)])
    ahead = 2 * (has.to(dtype) - has[RIGHT_OF_TWO].to(dtype))
    subject, answer = torch.zeros(2, 6, 6, dtype=dtype)
    for row, (i, j) in enumerate(pairs):
        subject[row, 2 * i] = answer[row, 2 * j + 1] = 1
    return ahead.to(device), subject.to(device), answer.to(device)


def relation_odds(
    attention: Float[Tensor, "copy 6"],
    *,
    temperature: float | Float[Tensor, "copy 1"],
) -> Float[Tensor, "copy pattern"]:
    """exp((l(pattern) - l(right)) / T), two examples.

    With c the counts of a prompt, c . odds is one over the probability of its true
    relation: nothing that grows with the prompts has to be exponentiated.
    """
    ahead, subject, answer = _pairings(attention.dtype, attention.device)
    products = (attention @ subject.T) * (attention @ answer.T)
    # Far beyond what Algorithm 1 meets, and short of an overflow.
    return (products @ ahead.T / temperature).clamp_max(600.0).exp()


def relation_slope(
    theta: Float[Tensor, "copy 6"],
    counts: Float[Tensor, "#copy row pattern"],
    targets: Float[Tensor, "#copy pattern"],
    *,
    temperature: Float[Tensor, "copy 1"],
) -> Float[Tensor, "copy 6"]:
    """The gradient of the mean `relation_loss` in the scores, two examples.

    In closed form: a dozen small operations, where autograd and an optimiser take a
    hundred.

    Args:
        theta: the scores of several copies.
        counts: of each of a copy's prompts, relations with each pattern.
        targets: how often each pattern is the right one; 1 for the true relation's.
        temperature: of each copy.
    """
    attention = theta.softmax(-1)
    ahead, subject, answer = _pairings(theta.dtype, theta.device)
    subjects, answers = attention @ subject.T, attention @ answer.T
    odds = ((subjects * answers) @ ahead.T / temperature).clamp_max_(600.0).exp_()
    inverse = (odds[:, None] @ counts.mT).reciprocal_()
    excess = odds * (inverse @ counts)[:, 0] / counts.shape[1] - targets
    by_pair = excess @ ahead / temperature
    slope = (by_pair * answers) @ subject + (by_pair * subjects) @ answer
    slope = slope * attention
    return slope.addcmul_(attention, slope.sum(-1, keepdim=True), value=-1)


def answer_slope(
    omega: Float[Tensor, "copy key"],
    *,
    n_subjects: Int[Tensor, " copy"],
    temperature: Float[Tensor, "copy 1"],
) -> tuple[Float[Tensor, "copy key"], Float[Tensor, " copy"]]:
    """The gradient of `answer_loss` in the scores, and the log odds of wrong answers.

    Both in log space: the odds may be far below what 1 - p can hold.
    """
    attention = omega.softmax(-1)
    subjects, strength = attention[:, 0:-2:2], 1 + attention[:, -1:]
    logits = 2 * strength * subjects / temperature
    n_others = (n_subjects - subjects.shape[1])[:, None].to(logits)
    others = n_others.log() - logits[:, -1:]
    against = torch.cat([logits[:, :-1] - logits[:, -1:], others], 1)
    odds = against.logsumexp(1, keepdim=True)
    wrong = (against - torch.logaddexp(odds, torch.zeros_like(odds))).exp()
    by_logit = torch.cat([wrong[:, :-1], -wrong.sum(1, keepdim=True)], 1)
    slope = torch.zeros_like(attention)
    slope[:, 0:-2:2] = by_logit * strength
    slope[:, -1:] = (by_logit * subjects).sum(1, keepdim=True)
    slope = slope * (2 / temperature)
    slope = attention * (slope - (attention * slope).sum(1, keepdim=True))
    return slope, odds[:, 0]


def ratio_rises(
    theta: Float[Tensor, "point 6"],
    counts: Num[Tensor, "1 pattern"],
    *,
    temperature: float | Float[Tensor, "point 1"],
) -> Bool[Tensor, " point"]:
    """Whether the largest within-pair ratio does not fall under gradient flow on L1."""
    right = torch.tensor([RIGHT_OF_TWO], device=counts.device)
    targets = one_hot(right, counts.shape[-1])
    heat = torch.as_tensor(temperature, dtype=theta.dtype).expand(len(theta), 1)
    several = counts[None].to(theta)
    slope = relation_slope(theta, several, targets.to(theta), temperature=heat)
    ratios = theta[:, [0, 2]] - theta[:, [1, 3]]
    change = -(slope[:, [0, 2]] - slope[:, [1, 3]]) * ratios.sign()
    widest = ratios.abs().argmax(1, keepdim=True)
    return change.gather(1, widest)[:, 0] >= 0


def lead(
    theta: Float[Tensor, "point 6"],
    counts: Num[Tensor, "1 pattern"],
    *,
    temperature: float | Float[Tensor, "point 1"],
) -> Float[Tensor, " point"]:
    """l(r1) - sum p l; Lemma 8's condition for the ratio to fall is that it exceeds 0.

    What is negligible counts as 0: uniform attention makes all logits equal.
    """
    logits = relation_logits(theta.softmax(1), quadratic_forms(2).to(theta.device))
    weights = (logits / temperature + counts.log()).softmax(1)
    found = logits[:, RIGHT_OF_TWO] - (weights * logits).sum(1)
    return found.masked_fill(found.abs() < 1e-12, 0.0)
