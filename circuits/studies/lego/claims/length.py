"""Algebra dictates length (H2)."""

from collections.abc import Iterator

from circuits.claims import Claim
from trained.lego.config import Config

from .learn import later


def length(_config: Config) -> Iterator[Claim]:
    """Claims about how far chains generalise."""
    yield later(
        "lego.length.theory.d-grid",
        "T, C_n: the length where all falls through .5 grows with d, slope in log-log"
        " > 0.",
        "Theorem 4.1, eq. 7",
        "behaviour",
        weight=5,
    )
    yield later(
        "lego.length.theory.contrast",
        "T: S_n reaches a constant factor only: its slope is below C_n's at equal d, by"
        " the same rule.",
        "Theorem 1.2",
        "behaviour",
        weight=5,
    )
    yield later(
        "lego.length.joint.c6",
        "E, C6: trained at length 5, chains of 160 are solved, all@160 >= .9.",
        "Figure 1a",
        "behaviour",
        weight=5,
    )
    yield later(
        "lego.length.joint.s5",
        "E, S5 after equal epochs: a constant factor beyond 5, less far than C6.",
        "Figure 1a",
        "behaviour",
        weight=5,
    )
