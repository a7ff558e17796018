"""Quantities of the lego study's trained models."""

from trained.lego.theory_arms import Course

from .experiment import ExperimentLab
from .folded import with_attention
from .grid import GridLab
from .models import Specimen


class LegoLab(GridLab, ExperimentLab):
    """A run of the lego study, opened for measuring."""

    def weak(self, group: str) -> list[Specimen]:
        """The theory's main models early in Algorithm 1, attention far from sharp."""
        course = Course(self.config, group)
        return self._specimens(group, course.name, course.weak)

    def inside(self, *groups: str) -> list[float]:
        """Whether every such model's L_x lies within what is tested, as 0 or 1."""
        found = [s for group in groups for s in self.weak(group)]
        first = self.config.train_length
        reached = zip(self.crossings(found), found, strict=True)
        return [float(all(first < x < self._longest_of(s) for x, s in reached))]

    def exchange_gain(self, body: str, eyes: str) -> list[float]:
        """log2 of L_x of one action's FFN with another's Q over L_x with its own.

        An action's own Q is that of the next seed.
        """
        own, donors = self.weak(body), self.weak(eyes)
        donors = [*donors[1:], donors[0]] if body == eyes else donors
        swapped = [with_attention(a, b) for a, b in zip(own, donors, strict=True)]
        return self.log_ratios(self.crossings(swapped), self.crossings(own))
