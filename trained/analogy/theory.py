"""The alignment law: how similar do two entities become in stage 1? Free of torch.

While attention is even and no answer is sure, each step of stage 1 adds to V z of an
entity a multiple of the head row of every label that the entity is taught, so after
T steps V z = V_0 z + c sum_label (multiplicity) w_label, c = rate T scale / (2 N) for
a multiset of N facts. With V_0 z orthogonal to all of it, cosines follow from the
noise-to-signal ratio rho^2 = |V_0 z|^2 / (c |w|)^2 = m (2 N / (rate T scale))^2.
"""

from dataclasses import dataclass
from math import sqrt

from .config import BlockSizes, Config, Linear, Values


@dataclass(frozen=True)
class Alignment:
    """The one-layer block and its stage 1, and what the law says about them."""

    block: BlockSizes
    values: Values

    @classmethod
    def at(cls, config: Config) -> "Alignment":
        """The law at a configuration."""
        return cls(config.block, config.values)

    @property
    def rate(self) -> float:
        """Learning rate of stage 1: keeps rho when the sizes change."""
        n, d_model = self.block.n_entities, self.block.d_model
        return self.values.rate * n / 100 * sqrt(512 / d_model)

    def step_size(self, n_facts: int | float) -> float:
        """c: what all of stage 1 adds of a label taught once among n_facts."""
        d_model = self.block.d_model
        return self.rate * self.values.steps * sqrt(d_model) / (2 * n_facts)

    def noise(self, n_facts: int | float) -> float:
        """The noise-to-signal ratio rho squared."""
        return self.block.n_neurons / self.step_size(n_facts) ** 2

    def joint(self, k: int | float, strength: float = 1.0) -> float:
        """Cosine of source and target after joint training, or with the bridge.

        Args:
            k: copies of the similarity premises.
            strength: of stage 1, in units of the configuration's.

        >>> round(Alignment(BlockSizes(100, 512), Values()).joint(3), 3)
        0.91
        """
        rho2 = self.noise((2 * k + 1) * self.block.n_entities / strength)
        return k**2 / sqrt((k**2 + 1 + rho2) * (k**2 + rho2))

    def similarity_first(self) -> float:
        """Cosine when stage 1 sees only the similarity premises.

        >>> round(Alignment(BlockSizes(100, 512), Values()).similarity_first(), 3)
        0.969
        """
        return 1 / (1 + self.noise(2 * self.block.n_entities))

    @property
    def zero(self) -> float:
        """What the mean cosine of n unrelated pairs stays below: 4 standard errors."""
        return 4 / sqrt(self.block.n_entities * self.block.d_model)


def depth_cosine(sizes: Linear, inputs: int = 2) -> float:
    """Cosine of two inputs with one label after the last hidden layer (Theorem 6).

    While no answer is sure, a layer's turn adds to h = x + a w, w the head row of its
    label, alpha times the inner product with every input of the label.

    Args:
        sizes: of the network.
        inputs: that share a label.

    >>> round(depth_cosine(Linear(layers=2)), 3), round(depth_cosine(Linear()), 2)
    (0.055, 1.0)
    """
    alpha = sizes.rate * sizes.steps / 64 * (1 - 1 / sizes.n_labels)
    along = 0.0
    for _ in range(sizes.layers - 1):
        along += alpha * (1 + inputs * along**2)
    return along**2 / (1 + along**2)
