"""How often do the intervals of verdicts hold the truth? `python -m scripts.coverage`.

Simulated: normal, Bernoulli and skewed (log-normal) data at 3, 5 and 10 replicates. For
skewed data a t interval of few values covers too rarely; a claim then uses the median,
the logarithm or `each`.
"""

import math

from numpy.random import default_rng

from probes.statistics import clopper_pearson, median_interval, student_interval

TRIALS = 2000
REPLICATES = (3, 5, 10)
EXAMPLES = 50
"""Examples per replicate of a proportion."""


def main() -> None:
    """Print the coverage table."""
    print(f"{'data, interval':34}" + "".join(f"n={n:<8}" for n in REPLICATES))
    for name, row in (
        ("normal, t", [_normal(n) for n in REPLICATES]),
        ("Bernoulli .9, Clopper-Pearson", [_bernoulli(n) for n in REPLICATES]),
        ("log-normal, t", [_skewed(n) for n in REPLICATES]),
        ("log-normal, t of the logarithm", [_logarithm(n) for n in REPLICATES]),
        ("log-normal, median", [_median(n) for n in REPLICATES]),
    ):
        print(f"{name:34}" + "".join(f"{value:<10.3f}" for value in row))


def _share(ends: list[tuple[float, float]], truth: float) -> float:
    return sum(low <= truth <= high for low, high in ends) / len(ends)


def _normal(n: int) -> float:
    draws = default_rng(n).normal(size=(TRIALS, n)).tolist()
    return _share([student_interval(row) for row in draws], 0.0)


def _bernoulli(n: int) -> float:
    hits = default_rng(n).binomial(EXAMPLES * n, 0.9, TRIALS).tolist()
    return _share([clopper_pearson(h, EXAMPLES * n) for h in hits], 0.9)


def _skewed(n: int) -> float:
    draws = default_rng(n).lognormal(size=(TRIALS, n)).tolist()
    return _share([student_interval(row) for row in draws], math.exp(0.5))


def _logarithm(n: int) -> float:
    draws = default_rng(n).lognormal(size=(TRIALS, n)).tolist()
    logs = [[math.log(value) for value in row] for row in draws]
    return _share([student_interval(row) for row in logs], 0.0)


def _median(n: int) -> float:
    draws = default_rng(n).lognormal(size=(TRIALS, n)).tolist()
    return _share([median_interval(row) for row in draws], 1.0)


if __name__ == "__main__":
    main()
