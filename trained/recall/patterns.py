"""The exact loss of the constructed memory, by match patterns.

With Lemma 1's memory a relation's logit depends on the relation only through which
of the prompt's k+1 subjects it maps to which of its k answers (a partial matching:
13 patterns for k=2, 73 for k=3). With v the attention of EoS,

    l(pattern) = sum_{i <= 2k+1} v_i^2 + 2 sum_{(i, j) in pattern} v[s_i] v[a_j]

(eq. 18 of the paper). Counting relations per pattern gives the loss of a prompt at
any n and m for the price of 13 numbers; tests compare it with the real model.
"""

import math
from functools import cache
from itertools import combinations, permutations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .prompts import Prompts


@cache
def matchings(n_examples: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All partial matchings of k+1 subjects with k answers, the empty one first.

    >>> len(matchings(2)), len(matchings(3))
    (13, 73)
    """
    found = []
    for size in range(n_examples + 1):
        for subjects in combinations(range(n_examples + 1), size):
            for answers in permutations(range(n_examples), size):
                found.append(tuple(zip(subjects, answers, strict=True)))
    return tuple(found)


def right_pattern(n_examples: int) -> int:
    """The pattern of the true relation: every example subject with its own answer."""
    return matchings(n_examples).index(tuple((i, i) for i in range(n_examples)))


def pattern_of_relation(prompts: Prompts) -> Int[Tensor, "batch relation"]:
    """The match pattern of every relation on every prompt."""
    k = prompts.n_examples
    images = prompts.table.T[prompts.subjects]
    hits = images[:, :, :, None] == prompts.answers[:, None, None, :k]
    weights = 2 ** torch.arange((k + 1) * k).reshape(k + 1, 1, k)
    code = (hits * weights).sum((1, 3))
    codes = torch.tensor(
        [sum(2 ** (i * k + j) for i, j in pattern) for pattern in matchings(k)]
    )
    return _index_of(codes, code)


def pattern_counts(prompts: Prompts) -> Int[Tensor, "batch pattern"]:
    """How many relations have each match pattern, prompt by prompt."""
    which = pattern_of_relation(prompts)
    n_patterns = len(matchings(prompts.n_examples))
    counts = torch.zeros(len(which), n_patterns, dtype=torch.long)
    return counts.scatter_add_(1, which, torch.ones_like(which))


def quadratic_forms(n_examples: int) -> Float[Tensor, "pattern key key2"]:
    """Matrices M with l(pattern) = v M v; the last key (EoS) never enters."""
    k = n_examples
    base = torch.eye(2 * k + 2, dtype=torch.float64)
    base[-1, -1] = 0
    forms = base.repeat(len(matchings(k)), 1, 1)
    for form, pattern in zip(forms, matchings(k), strict=True):
        for subject, answer in pattern:
            form[2 * subject, 2 * answer + 1] += 1
            form[2 * answer + 1, 2 * subject] += 1
    return forms


def relation_logits(
    attention: Float[Tensor, "*batch key"], forms: Float[Tensor, "pattern key key2"]
) -> Float[Tensor, "*batch pattern"]:
    """The logit of a relation with each match pattern."""
    products = attention[..., None, None, :] @ forms
    return (products.squeeze(-2) @ attention[..., None]).squeeze(-1)


def relation_loss(
    attention: Float[Tensor, "*#batch key"],
    counts: Int[Tensor, "*batch pattern"],
    forms: Float[Tensor, "pattern key key2"],
    *,
    temperature: float,
) -> Float[Tensor, "*batch"]:
    """Cross-entropy of the true relation among the relation tokens, per prompt."""
    scaled = relation_logits(attention, forms) / temperature
    right = right_pattern((attention.shape[-1] - 2) // 2)
    # In the logits' precision: the logarithm of integers would be float32.
    log_counts = counts.to(scaled.dtype).log()
    return (scaled + log_counts).logsumexp(-1) - scaled[..., right]


def relation_accuracy(
    attention: Float[Tensor, "*#batch key"],
    counts: Int[Tensor, "*batch pattern"],
    forms: Float[Tensor, "pattern key key2"],
    *,
    tolerance: float,
) -> Float[Tensor, "*batch"]:
    """Argmax accuracy on the relation, ties split evenly, per prompt."""
    logits = relation_logits(attention, forms)
    present = counts > 0
    best = logits.masked_fill(~present, -torch.inf).amax(-1, keepdim=True)
    tied: Bool[Tensor, "*batch pattern"] = present & (logits >= best - tolerance)
    right = right_pattern((attention.shape[-1] - 2) // 2)
    return tied[..., right] / (tied * counts).sum(-1)


def answer_loss(
    attention: Float[Tensor, " key"],
    *,
    n_subjects: int,
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of the answer once the relation is appended (step 2).

    With q the attention of the appended relation and c = 1 + q[relation]:
    l(a_i) = sum_j q_j^2 + 2 c q[s_i] + c^2 for the prompt's subjects, and without the
    middle term for the other n-k-1 answers; what is common to all cancels.
    """
    subjects = attention[0:-2:2]
    logits = 2 * (1 + attention[-1]) * subjects / temperature
    n_others = n_subjects - subjects.shape[0]
    if n_others == 0:
        return logits.logsumexp(0) - logits[-1]
    others = logits.new_full((1,), math.log(n_others))
    return torch.cat([logits, others]).logsumexp(0) - logits[-1]


def _index_of(sorted_or_not: Tensor, values: Tensor) -> Tensor:
    """The position of every value in a list of distinct ones."""
    order = sorted_or_not.argsort()
    return order[torch.searchsorted(sorted_or_not[order], values)]
