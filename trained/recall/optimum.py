"""The best attention of EoS: the minimum of the population loss, by BFGS.

The paper's Theorem 2 gives its shape, (a, a, 1/2-a, 1/2-a, 0, 0); the value of a
depends on the temperature and on the relation table.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import softplus

from .patterns import quadratic_forms, relation_logits, right_pattern


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
