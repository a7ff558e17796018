"""The alignment law: how similar do two entities become in stage 1? Free of torch.

While attention is even and no answer is sure, each step of stage 1 adds to V z of an
entity a multiple of the head row of every label that the entity is taught, so after
T steps V z = V_0 z + c sum_label (multiplicity) w_label, c = rate T scale / (2 N) for
a multiset of N facts. With V_0 z orthogonal to all of it, cosines follow from the
noise-to-signal ratio rho^2 = |V_0 z|^2 / (c |w|)^2 = m (2 N / (rate T scale))^2.
"""

from dataclasses import dataclass
from math import sqrt

STEPS = 62
"""Steps of stage 1 [T_A]."""
N_NEURONS = 10
"""Neurons per class [m]."""
INIT_STD = 3e-4
"""Of every parameter of the block [sigma_0]."""


@dataclass(frozen=True)
class Alignment:
    """Sizes of the one-layer block, and what the law says about them."""

    n: int
    d_model: int
    n_neurons: int = N_NEURONS

    @property
    def rate(self) -> float:
        """Learning rate of stage 1: keeps rho when the sizes change."""
        return 5 * self.n / 100 * sqrt(512 / self.d_model)

    def step_size(self, n_facts: int | float) -> float:
        """c: what all of stage 1 adds of a label taught once among n_facts."""
        return self.rate * STEPS * sqrt(self.d_model) / (2 * n_facts)

    def noise(self, n_facts: int | float) -> float:
        """The noise-to-signal ratio rho squared."""
        return self.n_neurons / self.step_size(n_facts) ** 2

    def joint(self, k: int | float) -> float:
        """Cosine of source and target after joint training, or with the bridge.

        >>> round(Alignment(100, 512).joint(3), 3)
        0.91
        """
        rho2 = self.noise((2 * k + 1) * self.n)
        return k**2 / sqrt((k**2 + 1 + rho2) * (k**2 + rho2))

    def similarity_first(self) -> float:
        """Cosine when stage 1 sees only the similarity premises.

        >>> round(Alignment(100, 512).similarity_first(), 3)
        0.968
        """
        return 1 / (1 + self.noise(2 * self.n))

    @property
    def zero(self) -> float:
        """What the mean cosine of n unrelated pairs stays below: 4 standard errors."""
        return 4 / sqrt(self.n * self.d_model)
