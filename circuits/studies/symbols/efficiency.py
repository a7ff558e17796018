"""How much data does a curve need to reach a level, and how many times less another?"""

from jaxtyping import Float
from torch import Tensor


def crossing(
    sizes: tuple[int, ...], errors: Float[Tensor, " size"], level: float
) -> float:
    """The size at which a falling curve reaches a level; infinite if it never does.

    Linear between the measured errors, on a logarithmic axis of sizes. A curve that
    starts below the level gives the first size, an upper bound.

    >>> import torch
    >>> crossing((16, 64), torch.tensor([0.8, 0.2]), 0.5)
    32.0
    """
    below = (errors <= level).nonzero()
    if not len(below):
        return float("inf")
    index = int(below[0])
    if index == 0:
        return float(sizes[0])
    before, after = float(errors[index - 1]), float(errors[index])
    share = (before - level) / (before - after)
    return float(sizes[index - 1] * (sizes[index] / sizes[index - 1]) ** share)


def data_ratio(
    vanilla: list[float], modified: list[float], largest: float
) -> list[float]:
    """The n that vanilla needs over the modified model's, seed by seed.

    Vanilla's is at most `largest`, the last measured n: the ratio is then a lower
    bound. 0 where the modified model never gets there.

    >>> data_ratio([640.0, float("inf")], [32.0, 64.0], 1024.0)
    [20.0, 16.0]
    """
    return [
        min(plain, largest) / changed
        for plain, changed in zip(vanilla, modified, strict=True)
    ]


def needs(
    sizes: tuple[int, ...], errors: Float[Tensor, "size seed"], level: float
) -> list[float]:
    """The n at which each seed's error reaches the level."""
    return [crossing(sizes, column, level) for column in errors.T]
