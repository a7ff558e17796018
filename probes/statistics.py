"""How sure is a number that rests on a few seeds or examples?

Intervals, tests, and an accuracy that does not reward round-off. Randomness
comes from `generator`, or from `seed` when none is given, so every interval can be
repeated.
"""

import math
import statistics
from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHUNK = 1_000_000
"""Resampled values held at a time."""


def student_interval(
    values: Sequence[float], *, level: float = 0.95
) -> tuple[float, float]:
    """Student's t interval of the mean; undefined (nan) for a single value.

    mean -+ t_{(1 + level) / 2, n - 1} s / sqrt(n), with s the sample standard deviation
    (Student 1908). Exact for normal values.

    >>> student_interval([1.0, 1.0, 1.0])
    (1.0, 1.0)
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    mean = math.fsum(values) / len(values)
    half = student_half_width(values, len(values), level=level)
    return mean - half, mean + half


def student_half_width(
    values: Sequence[float], n: int, *, level: float = 0.95
) -> float:
    """Half the width that the interval would have with n values as spread as these.

    nan for a single value, whose spread is unknown.
    """
    from scipy.stats import t as student

    if len(values) < 2:
        return math.nan
    spread = statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan
    return float(student.ppf((1 + level) / 2, n - 1)) * spread / math.sqrt(n)


def student_p_value(values: Sequence[float], bound: float, *, above: bool) -> float:
    """P-value of a one-sided t test that the mean lies above (or below) a bound.

    In [0, 1]; 1 for a single value, which is no evidence. Equal values on the right
    side of the bound give 0.
    """
    from scipy.stats import t as student

    if len(values) < 2 or not all(map(math.isfinite, values)):
        return 1.0
    gap = math.fsum(values) / len(values) - bound
    gap = gap if above else -gap
    spread = statistics.stdev(values)
    if spread == 0.0:
        return 0.0 if gap >= 0 else 1.0
    return float(student.sf(gap / (spread / math.sqrt(len(values))), len(values) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number, each in [0, 1] (Holm 1979).

    The k-th smallest of m is multiplied by m - k + 1, and none is smaller than the one
    before: rejecting those below 0.05 keeps the chance of any false one below 0.05.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = least
    return adjusted


def median_interval(
    values: Sequence[float], *, level: float = 0.95
) -> tuple[float, float]:
    """The narrowest pair of order statistics that holds the median; else undefined.

    x_(k), x_(n + 1 - k) hold it with probability 1 - 2 P(Binomial(n, 1/2) < k) under
    any distribution; for less than six values no pair reaches 95 % (nan).

    >>> median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    (1.0, 6.0)
    """
    from scipy.stats import binom

    n = len(values)
    k = int(binom.ppf((1 - level) / 2, n, 0.5))
    if k < 1 or not all(map(math.isfinite, values)):
        return math.nan, math.nan
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


@cache
def clopper_pearson(hits: int, of: int, *, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a proportion (Clopper and Pearson 1934).

    All p that would give at most, or at least, so many hits with a probability of
    (1 - level) / 2 or more: quantiles of beta distributions. At a perfect score of n
    the lower end is ((1 - level) / 2)^(1 / n): 72 examples for 0.95, 368 for 0.99.

    >>> [round(end, 3) for end in clopper_pearson(72, 72)]
    [0.95, 1.0]
    """
    from scipy.special import betaincinv

    if not 0 <= hits <= of or of == 0:
        raise ValueError(f"{hits} hits of {of}")
    tail, misses = (1 - level) / 2, of - hits
    low = betaincinv(hits, misses + 1, tail) if hits else 0.0
    high = betaincinv(hits + 1, misses, 1 - tail) if misses else 1.0
    return float(low), float(high)


def bootstrap_interval(
    values: Float[Tensor, " sample"],
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    generator: torch.Generator | None = None,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean; [v, v] for a single value v.

    The (1 - level) / 2 and (1 + level) / 2 quantiles of the means of samples drawn with
    replacement (Efron 1979). With n seeds it never leaves their range, and with fewer
    than about five it is narrower than its level says.

    >>> bootstrap_interval(torch.tensor([2.0]))
    (2.0, 2.0)
    """
    n = len(values)
    if n == 0:
        raise ValueError("an interval needs at least one value")
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    drawn = _generator(generator, seed)
    data = values.detach().to(drawn.device, torch.float64)
    means = []
    for size in _chunks(n_resamples, max(1, CHUNK // n)):
        index = torch.randint(n, (size, n), generator=drawn, device=drawn.device)
        means.append(data[index].mean(-1))
    tail = (1 - level) / 2
    ends = torch.tensor([tail, 1 - tail], dtype=data.dtype, device=data.device)
    low, high = torch.quantile(torch.cat(means), ends).tolist()
    return low, high


def standard_error(values: Float[Tensor, " sample"]) -> float:
    """Standard error of the mean, at least 0; nan for a single value.

    s / sqrt(n), with s the sample standard deviation (n - 1 in the denominator).
    """
    n = len(values)
    if n < 2:
        return float("nan")
    return float(values.detach().double().std(correction=1) / n**0.5)


def tie_split_credit(
    logits: Float[Tensor, "*batch class"],
    targets: Int[Tensor, "*batch"],
    *,
    tolerance: float = 1e-4,
) -> Float[Tensor, "*batch"]:
    """Credit of each prediction, in [0, 1]: 1 / ties if the target is among the best.

    ties = #{classes within `tolerance` of the largest logit}. Section 6 of the study of
    "Fine-Tuning Dynamics of In-Context Factual Recall": argmax among exact ties
    measures float noise. Not-a-number logits have no best, and no credit: NaN.

    Args:
        logits: Scores by class.
        targets: The right class.
        tolerance: 1e-4 suits float32, 1e-6 float64.
    """
    n_classes = logits.shape[-1]
    if targets.numel() and (int(targets.min()) < 0 or int(targets.max()) >= n_classes):
        raise ValueError(
            f"targets from {int(targets.min())} to {int(targets.max())}; "
            f"valid: 0 to {n_classes - 1}"
        )
    best = logits >= logits.amax(-1, keepdim=True) - tolerance
    hit = best.gather(-1, targets.long()[..., None])[..., 0]
    # Nothing is best beside NaN: 0 / 0.
    return (hit / best.sum(-1)).to(logits.dtype)


def tie_split_accuracy(
    logits: Float[Tensor, "example class"],
    targets: Int[Tensor, " example"],
    *,
    tolerance: float = 1e-4,
) -> float:
    """Accuracy of argmax with ties split, in [0, 1]; the mean of `tie_split_credit`.

    >>> tie_split_accuracy(torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([0]))
    0.5
    """
    if len(targets) == 0:
        raise ValueError("an accuracy needs at least one example")
    credit = tie_split_credit(logits, targets, tolerance=tolerance)
    return float(credit.double().mean())


def _generator(generator: torch.Generator | None, seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed) if generator is None else generator


def _chunks(total: int, largest: int) -> list[int]:
    full, rest = divmod(total, largest)
    return [largest] * full + [rest] * (rest > 0)
