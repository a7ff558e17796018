"""Does what misses a clause grow with the number of other clauses as softmax says?"""

import torch
from jaxtyping import Float
from torch import Tensor


def other_clauses(length: int) -> Float[Tensor, " step"]:
    """Clauses beside one predicate that step l of a chain can see.

    L - 1 other predicates and the answers 0 to l - 1.

    >>> other_clauses(2).tolist()
    [2.0, 3.0]
    """
    return length - 1 + torch.arange(1, length + 1, dtype=torch.float64)


def diluted_miss(weight: float, length: int) -> float:
    """Mean over steps of n / (n + K): what misses a clause of weight K, in [0, 1].

    K = e^q if the clause's score is q above that of every one of the n others.
    """
    others = other_clauses(length)
    return float((others / (others + weight)).mean())


def fitted_weight(miss: float, length: int) -> float:
    """The K whose miss at a length is the given one; inf for 0, 0 for 1."""
    if not 0 < miss < 1:
        return float("inf") if miss <= 0 else 0.0
    low, high = 1e-9, 1e12
    for _ in range(200):
        middle = (low * high) ** 0.5
        # The miss falls as K grows.
        low, high = (
            (middle, high) if diluted_miss(middle, length) > miss else (low, middle)
        )
    return (low * high) ** 0.5


def prediction_errors(
    short: Float[Tensor, " head"],
    long: Float[Tensor, " head"],
    *,
    short_length: int,
    long_length: int,
) -> tuple[float, float]:
    """Relative error of the miss predicted for long chains, mean over heads.

    Returns:
        That of the dilution law with K from the short chains, and that of a miss that
        stays as it was.
    """
    law, constant = [], []
    for before, after in zip(short.tolist(), long.tolist(), strict=True):
        predicted = diluted_miss(fitted_weight(before, short_length), long_length)
        law.append(abs(predicted - after) / after)
        constant.append(abs(before - after) / after)
    return sum(law) / len(law), sum(constant) / len(constant)
