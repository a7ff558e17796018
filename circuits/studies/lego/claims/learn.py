"""CoT is learned (H1)."""

from collections.abc import Iterator
from functools import partial

from circuits.claims import Claim
from trained.lego.config import Config

later = partial(Claim, not_tested="not measured yet")
"""A leaf that nothing measures so far."""


def learned(_config: Config) -> Iterator[Claim]:
    """Claims about learning the training length."""
    yield later(
        "lego.learn.theory",
        "T, C6 and S5: chains of length 2 are solved, all@2 >= .99.",
        "Theorem 1.1",
        "behaviour",
        weight=4,
    )
    yield later(
        "lego.learn.joint",
        "E: at least .8 of the seeds pass the gate (train loss < .01, all@5 >= .99), in"
        " each group.",
        "Section 7",
        "behaviour",
        weight=4,
    )
