"""The exact loss of the constructed memory, by match patterns.

With Lemma 1's memory a relation's logit depends on the relation only through which
of the prompt's k+1 subjects it maps to which of its k answers (a partial matching:
13 patterns for k=2, 73 for k=3). With v the attention of EoS,

    l(pattern) = sum_{i <= 2k+1} v_i^2 + 2 sum_{(i, j) in pattern} v[s_i] v[a_j]

(eq. 18 of the paper). Counting relations per pattern gives the loss of a prompt at
any n and m for the price of 13 numbers; tests compare it with the real model.

The best attention is the minimum of that loss. Theorem 2 gives its shape for k=2,
(a, a, 1/2-a, 1/2-a, 0, 0); the value of a depends on the temperature and on the table.
"""

from functools import cache
from itertools import combinations, permutations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Num
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import softplus

from .task import Episodes


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


RIGHT_OF_TWO = right_pattern(2)


def pattern_of_relation(episodes: Episodes) -> Int[Tensor, "batch relation"]:
    """The match pattern of every relation on every prompt."""
    k = episodes.n_examples
    images = episodes.table.T[episodes.subjects]
    hits = images[:, :, :, None] == episodes.answers[:, None, None, :k]
    weights = 2 ** torch.arange((k + 1) * k).reshape(k + 1, 1, k)
    code = (hits * weights).sum((1, 3))
    codes = torch.tensor(
        [sum(2 ** (i * k + j) for i, j in pattern) for pattern in matchings(k)]
    )
    return _index_of(codes, code)


def pattern_counts(episodes: Episodes) -> Int[Tensor, "batch pattern"]:
    """How many relations have each match pattern, prompt by prompt."""
    which = pattern_of_relation(episodes)
    n_patterns = len(matchings(episodes.n_examples))
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
    counts: Num[Tensor, "*batch pattern"],
    forms: Float[Tensor, "pattern key key2"],
    *,
    temperature: float | Float[Tensor, "*#batch 1"],
    target: Int[Tensor, "*batch"] | None = None,
) -> Float[Tensor, "*batch"]:
    """Cross-entropy of a relation among the relation tokens, per prompt.

    Args:
        attention: of EoS.
        counts: relations with each pattern.
        forms: see `quadratic_forms`.
        temperature: of the softmax.
        target: the pattern of the relation; by default the true one's.
    """
    scaled = relation_logits(attention, forms) / temperature
    # In the logits' precision: the logarithm of integers would be float32.
    log_counts = counts.to(scaled.dtype).log()
    if target is None:
        chosen = scaled[..., right_pattern((attention.shape[-1] - 2) // 2)]
    else:
        chosen = _picked(scaled, target)
    return (scaled + log_counts).logsumexp(-1) - chosen


def _picked(
    logits: Float[Tensor, "*#batch c"], target: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    return logits.expand(*target.shape, -1).gather(-1, target[..., None])[..., 0]


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


def answer_logits(attention: Float[Tensor, "*batch key"]) -> Float[Tensor, "*batch c"]:
    """The second step's logits: of the answers to the prompt's subjects, and others'.

    With q the attention of the appended relation and c = 1 + q[relation]:
    l(a_i) = sum_j q_j^2 + 2 c q[s_i] + c^2 for the prompt's subjects, and without the
    middle term for the other n-k-1 answers (the last column); what is common to all is
    left out.
    """
    shown = 2 * (1 + attention[..., -1:]) * attention[..., 0:-2:2]
    return torch.cat([shown, torch.zeros_like(shown[..., :1])], -1)


def answer_loss(
    attention: Float[Tensor, "*#batch key"],
    *,
    n_subjects: int | Int[Tensor, "*#batch"],
    temperature: float | Float[Tensor, "*#batch 1"],
    target: Int[Tensor, "*batch"] | None = None,
) -> Float[Tensor, "*batch"]:
    """Cross-entropy of the answer once the relation is appended (step 2).

    Args:
        attention: of the appended relation.
        n_subjects: in the table.
        temperature: of the softmax.
        target: the column of `answer_logits`; by default the query's answer.
    """
    logits = answer_logits(attention) / temperature
    n_shown = logits.shape[-1] - 1
    # There may be no other answers, whose logarithm is -inf.
    many = torch.ones_like(logits)
    many[..., -1] = n_subjects - n_shown
    chosen = logits[..., n_shown - 1] if target is None else _picked(logits, target)
    return (logits + many.log()).logsumexp(-1) - chosen


def answer_accuracy(
    attention: Float[Tensor, "*batch key"],
    *,
    n_subjects: int | Int[Tensor, "*batch"],
    tolerance: float,
) -> Float[Tensor, "*batch"]:
    """Argmax accuracy on the query's answer after the second step, ties split."""
    logits = answer_logits(attention)
    n_shown = logits.shape[-1] - 1
    many = torch.ones_like(logits)
    many[..., -1] = n_subjects - n_shown
    best = logits.masked_fill(many == 0, -torch.inf).amax(-1, keepdim=True)
    tied = (logits >= best - tolerance) & (many > 0)
    return tied[..., n_shown - 1] / (tied * many).sum(-1)


def optimal_attention(
    counts: Int[Tensor, "row pattern"], n_examples: int, *, temperature: float
) -> Float[Tensor, " key"]:
    """The attention with the least loss, the lightest pair first.

    Two kinds of start: distinct pairs (weights in arithmetic progression, the limit
    at zero temperature) and one pair alone. Random starts miss the first minimum near
    the temperature where the second becomes the better one.
    """
    rows, repeats = torch.unique(counts, dim=0, return_counts=True)
    weights = repeats.double() / repeats.sum()
    forms = quadratic_forms(n_examples)
    right = right_pattern(n_examples)
    log_right = rows[:, right].double().log()
    wrong = rows.double().log()
    wrong[:, right] = -torch.inf

    def loss(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = torch.tensor(theta, requires_grad=True)
        logits = relation_logits(scores.softmax(0), forms) / temperature
        # What the wrong patterns weigh against the right one; its softplus is the loss
        # up to a constant. The logarithm keeps the slope where the loss is tiny.
        against = (logits + wrong).logsumexp(-1) - logits[right] - log_right
        total = (softplus(against) @ weights).log()
        (gradient,) = torch.autograd.grad(total, scores)
        return float(total.detach()), gradient.numpy()

    found = [
        minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        for start in _starts(n_examples)
    ]
    best = min(found, key=lambda result: float(result.fun))
    return _light_first(torch.from_numpy(best.x).softmax(0))


def _starts(n_examples: int) -> list[NDArray[np.float64]]:
    distinct = np.repeat(np.log(np.arange(1.0, n_examples + 1)), 2)
    single = np.repeat(np.where(np.arange(n_examples) == n_examples - 1, 0.0, -6.0), 2)
    rest = np.array([-6.0, -6.0])
    return [np.concatenate([pairs, rest]) for pairs in (distinct, single)]


def _light_first(attention: Float[Tensor, " key"]) -> Float[Tensor, " key"]:
    pairs = attention[:-2].reshape(-1, 2)
    ordered = pairs[pairs.sum(1).argsort()]
    return torch.cat([ordered.flatten(), attention[-2:]])


def saddle_curvature(temperature: float) -> float:
    """The curvature of L1 at (1/4, 1/4, 1/4, 1/4, 0, 0) along (1, 1, -1, -1, 0, 0)/2.

    For n=3: -1/(8T) + 1/(32 T^2 (4 + 2 exp(1/(8T)))). The paper prints another
    exponent and a squared factor (`printed_saddle_curvature`).
    """
    t = temperature
    return float(-1 / (8 * t) + 1 / (32 * t**2 * (4 + 2 * np.exp(1 / (8 * t)))))


def printed_saddle_curvature(temperature: float) -> float:
    """The same curvature as the paper prints it, for comparison."""
    t = temperature
    return float(-1 / (8 * t) + 1 / (16 * t**2 * (4 + 2 * np.exp(3 / (16 * t))) ** 2))


def hessian(
    theta: Float[Tensor, " key"],
    counts: Int[Tensor, "row pattern"],
    *,
    temperature: float,
) -> Float[Tensor, "key key2"]:
    """The second derivatives of L1 in the scores, by autograd."""
    forms = quadratic_forms((len(theta) - 2) // 2)

    def loss(scores: Tensor) -> Tensor:
        attention = scores.softmax(0)[None]
        return relation_loss(attention, counts, forms, temperature=temperature).mean()

    second: Tensor = torch.func.hessian(loss)(theta)
    return second


def _index_of(sorted_or_not: Tensor, values: Tensor) -> Tensor:
    """The position of every value in a list of distinct ones."""
    order = sorted_or_not.argsort()
    return order[torch.searchsorted(sorted_or_not[order], values)]
