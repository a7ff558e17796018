"""Quantities of the lego study's trained models."""

from .folded import FoldedLab
from .theory import TheoryLab


class LegoLab(FoldedLab, TheoryLab):
    """A run of the lego study, opened for measuring."""
