"""The dilution law: how concentration falls as irrelevant clauses are added.

If every irrelevant clause has the same score and what is looked for has K times its
odds, a query with n irrelevant clauses misses it by eps = n / (n + K). K is all that
training changes; length changes n only. The paper bounds eps; this form of it is ours.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

Counts = Float[Tensor, " query"]
"""Irrelevant clauses that each query sees."""


def irrelevant(length: int) -> Counts:
    """Beside both targets the query of answer l = 0 .. L - 1 sees L - 1 + l clauses."""
    return length - 1 + torch.arange(length, dtype=torch.float64)


def diluted_error(sharpness: float, counts: Counts) -> float:
    """The mean over queries of n / (n + K), in [0, 1].

    >>> round(diluted_error(3.0, irrelevant(2)), 4)  # n = 1 and 2
    0.325
    """
    return float((counts / (counts + sharpness)).mean())


def sharpness(error: float, counts: Counts) -> float:
    """The K at which the mean of n / (n + K) is this error; inf for an error of 0.

    >>> round(sharpness(diluted_error(3.0, irrelevant(2)), irrelevant(2)), 6)
    3.0
    """
    if error <= 0:
        return math.inf
    if error >= 1:
        return 0.0
    low, high = 1e-9, 1e12
    for _ in range(200):
        middle = math.sqrt(low * high)
        if diluted_error(middle, counts) > error:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def longest(sharpness: float, tolerated: float) -> float:
    """The length at which the last query's eps reaches what the FFN tolerates.

    n / (n + K) = eps at n = K eps / (1 - eps), and the last query of length L sees
    n = 2 L - 2.
    """
    return 1 + sharpness * tolerated / (1 - tolerated) / 2
