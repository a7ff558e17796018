"""Many exact gradient steps on the linear block's head as one step of the engine.

With attention and values frozen, stage 2 is softmax regression on fixed features H.
Its logits obey F <- F - rate scale^2 (H H^T) R with R = weights (softmax(F) - onehot),
so the iteration needs neither the head nor autograd; the head itself is rebuilt at
the end from the sum of the R. What would falsify it: the same number of plain engine
steps ending elsewhere (a test compares them).
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from .block import LinearBlock
from .data import Premises


@dataclass(frozen=True)
class HeadDescent:
    """A loss whose gradient is the head's whole displacement over many steps.

    Train it with gradient descent at rate 1: the engine then takes `iterations` steps
    of rate `rate` at once. Its value is the quantity before them, so `stop_below`
    keeps its meaning.
    """

    rate: float
    """Learning rate of the mean neuron: each neuron's rate divided by m."""
    iterations: int
    value: str = "loss"
    """`loss`, or `margin`: the largest lead of a wrong answer, negative once every
    premise is answered."""

    def __call__(self, model: LinearBlock, data: Premises) -> Float[Tensor, ""]:
        """The quantity, with the displacement as its gradient."""
        displacement, value = self._descend(model, data)
        product = (model.head * displacement).sum()
        return value + product - product.detach()

    def _descend(self, model: LinearBlock, data: Premises) -> tuple[Tensor, Tensor]:
        features = model.features(data.tokens)[:, 0].detach()
        logits = model.scale * features @ model.head.detach().mT
        right = one_hot(data.targets, logits.shape[-1]).to(logits)
        weights = data.weights[:, None]
        value = _VALUES[self.value](logits, right, weights)
        gram = self.rate * model.scale**2 * features @ features.mT * data.weights
        total = torch.zeros_like(logits)
        for _ in range(self.iterations):
            excess = logits.softmax(-1).sub_(right)
            total.add_(excess)
            logits.sub_(gram @ excess)
        displacement = self.rate * model.scale * (weights * total).mT @ features
        return displacement, value


def _loss(logits: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    return -(weights * right * logits.log_softmax(-1)).sum()


def _margin(logits: Tensor, right: Tensor, _weights: Tensor) -> Tensor:
    lead = (logits - 1e9 * right).amax(-1) - (logits * right).sum(-1)
    return lead.amax(-1)


_VALUES: dict[str, Any] = {"loss": _loss, "margin": _margin}
