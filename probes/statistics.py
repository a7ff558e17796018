"""How sure is a number that rests on a few seeds or examples?

Intervals, paired tests, and an accuracy that does not reward round-off. Randomness
comes from `generator`, or from `seed` when none is given, so every interval can be
repeated.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

MAX_EXACT = 12
"""Up to this many pairs, all sign flips are enumerated."""
CHUNK = 1_000_000
"""Resampled values held at a time."""


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


def paired_sign_flip_pvalue(
    first: Float[Tensor, " sample"],
    second: Float[Tensor, " sample"],
    *,
    alternative: Literal["two-sided", "greater", "less"] = "two-sided",
    n_resamples: int = 10_000,
    generator: torch.Generator | None = None,
    seed: int = 0,
) -> float:
    """P-value of a paired permutation test of the mean difference, in (0, 1].

    Under the null each difference first - second is as likely with the other sign. All
    2^n flips are enumerated for n <= 12, so that p is exact and at least 2^-n; beyond,
    `n_resamples` random flips give (1 + hits) / (1 + n_resamples), Phipson and Smyth
    2010. "greater" asks whether `first` is larger.

    >>> paired_sign_flip_pvalue(torch.tensor([1.0, 2.0]), torch.zeros(2))
    0.5
    """
    differences = (first - second).detach().cpu().double()
    n = len(differences)
    if n == 0:
        raise ValueError("a paired test needs at least one pair")
    exact = n <= MAX_EXACT
    flips = _all_flips(n) if exact else _random_flips(n, n_resamples, generator, seed)
    null, observed = flips @ differences, differences.sum()
    if alternative == "two-sided":
        null, observed = null.abs(), observed.abs()
    elif alternative == "less":
        null, observed = -null, -observed
    # Sums of the same numbers in another order differ by round-off only.
    slack = 1e-12 * differences.abs().sum()
    hits = int((null >= observed - slack).sum())
    return hits / len(flips) if exact else (1 + hits) / (1 + len(flips))


def tie_split_credit(
    logits: Float[Tensor, "*batch class"],
    targets: Int[Tensor, "*batch"],
    *,
    tolerance: float = 1e-4,
) -> Float[Tensor, "*batch"]:
    """Credit of each prediction, in [0, 1]: 1 / ties if the target is among the best.

    ties = #{classes within `tolerance` of the largest logit}. Section 6 of the study of
    "Fine-Tuning Dynamics of In-Context Factual Recall": argmax among exact ties
    measures float noise. Not-a-number logits earn 0.

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
    return (hit / best.sum(-1).clamp(min=1)).to(logits.dtype)


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


def _all_flips(n: int) -> Float[Tensor, "flip sample"]:
    bits = torch.arange(2**n)[:, None] >> torch.arange(n)
    return 1.0 - 2.0 * (bits & 1).double()


def _random_flips(
    n: int, n_resamples: int, generator: torch.Generator | None, seed: int
) -> Float[Tensor, "flip sample"]:
    drawn = _generator(generator, seed)
    bits = torch.randint(
        2, (n_resamples, n), generator=drawn, device=drawn.device, dtype=torch.int8
    )
    return 1.0 - 2.0 * bits.cpu().double()
