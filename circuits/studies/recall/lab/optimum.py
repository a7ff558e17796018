"""Where is the exact loss of three subjects least, and how does it bend there?"""

import math
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

from trained.recall.scores import mirrored
from trained.recall.slopes import relation_slope
from trained.recall.theory import (
    RIGHT_OF_TWO,
    hessian,
    optimal_attention,
    pattern_counts,
    printed_saddle_curvature,
    quadratic_forms,
    relation_loss,
    saddle_curvature,
)
from trained.recall.theory_arms import NOTHING, three_subjects
from trained.seeding import generator

FORMS = quadratic_forms(2)
SADDLE = torch.tensor([0.0, 0, 0, 0, NOTHING, NOTHING], dtype=torch.float64)
"""Scores of the attention (1/4, 1/4, 1/4, 1/4, 0, 0)."""
ALONG = torch.tensor([1.0, 1, -1, -1, 0, 0], dtype=torch.float64) / 2
ACROSS = torch.tensor([1.0, -1, -1, 1, 0, 0], dtype=torch.float64) / 2


def counts() -> Int[Tensor, "1 pattern"]:
    """Pattern counts of the three-subject prompt."""
    return pattern_counts(three_subjects())


@cache
def best_of_three(temperature: float) -> Float[Tensor, " key"]:
    """The attention where the exact loss is least, the lighter pair first."""
    return optimal_attention(counts(), 2, temperature=temperature)


def optimum(temperature: float) -> float:
    """The lighter pair's weight a*(T) there."""
    return float(best_of_three(temperature)[0])


def curvature_error(temperature: float, *, printed: bool = False) -> float:
    """Relative error of a formula for the saddle's curvature, against autograd."""
    formula = printed_saddle_curvature if printed else saddle_curvature
    exact = float(ALONG @ hessian(SADDLE, counts(), temperature=temperature) @ ALONG)
    return abs(formula(temperature) / exact - 1)


@cache
def least_loss(temperature: float, starts: int, seed: int) -> float:
    """The least L1 over all scores, from random starts and the two pairwise ones."""
    source = generator(seed, "global optimum")
    wide = 2 * torch.randn(starts, 6, generator=source, dtype=torch.float64)
    light = best_of_three(temperature).clamp_min(1e-12).log()[None]
    heat = torch.tensor([[temperature]], dtype=torch.float64)
    own = counts()[None].double()
    target = F.one_hot(torch.tensor([RIGHT_OF_TWO]), own.shape[-1]).double()

    def loss(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = torch.from_numpy(theta)[None]
        value = relation_loss(scores.softmax(1), counts(), FORMS, temperature=heat)
        slope = relation_slope(scores, own, target, temperature=heat)
        return float(value), slope[0].numpy()

    several = torch.cat([wide, light, mirrored(light)])
    found = [
        minimize(loss, start.numpy(), jac=True, method="BFGS") for start in several
    ]
    return min(float(result.fun) for result in found)


def critical_points(temperature: float, points: int = 4000) -> int:
    """Sign changes of L1' on (x, x, 1/2-x, 1/2-x, 0, 0), 0 < x < 1/4, below log 2."""
    x = torch.linspace(0, 0.25, points + 2, dtype=torch.float64)[1:-1]
    nothing = torch.zeros_like(x)
    line = torch.stack([x, x, 0.5 - x, 0.5 - x, nothing, nothing], 1)
    several = counts().expand(len(x), -1)
    loss = relation_loss(line, several, FORMS, temperature=temperature)
    slope = loss.diff().sign()
    turns = slope[1:] != slope[:-1]
    return int((turns & (loss[1:-1] < math.log(2))).sum())
