"""Stage 2 of the one-layer block: many exact steps on the head as one of the engine.

With attention and values frozen it is softmax regression on fixed features H. Its
logits obey F = F_0 - step scale^2 (H H^T) C, where C sums up the residuals weights
(softmax(F) - onehot) of all steps, so the iteration needs neither the head nor
autograd; the head itself is rebuilt at the end. A descent is a loss whose gradient is
the head's whole displacement: train it with gradient descent at rate 1. Its value is
the quantity before the steps, so `stop_below` keeps its meaning.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from trained.arm import Stage

from .model import LinearBlock
from .task import Premises


class _Regression(NamedTuple):
    """What the iteration needs of a block and its premises."""

    gram: Float[Tensor, "fact fact"]
    """scale^2 H H^T."""
    logits: Float[Tensor, "fact d_vocab"]
    right: Float[Tensor, "fact d_vocab"]
    weights: Float[Tensor, "fact 1"]


@dataclass(frozen=True)
class _Descent(ABC):
    iterations: int

    def __call__(self, model: LinearBlock, data: Premises) -> Float[Tensor, ""]:
        """The quantity, with the displacement as its gradient."""
        features = model.features(data.facts.tokens)[:, 0].detach()
        logits = model.scale * features @ model.head.detach().mT
        right = one_hot(data.facts.targets, logits.shape[-1]).to(logits)
        gram = model.scale**2 * features @ features.mT
        problem = _Regression(gram, logits, right, data.weights[:, None])
        value = self.quantity(problem)
        displacement = model.scale * self.summed(problem).mT @ features
        product = (model.head * displacement).sum()
        # In this order: the product is large, and its round-off is not the value's.
        return value + (product - product.detach())

    def quantity(self, problem: _Regression) -> Float[Tensor, ""]:
        """The loss."""
        logs = problem.logits.log_softmax(-1)
        return -(problem.weights * problem.right * logs).sum()

    @abstractmethod
    def summed(self, problem: _Regression) -> Float[Tensor, "fact d_vocab"]:
        """C times the step after all iterations."""


@dataclass(frozen=True)
class HeadDescent(_Descent):
    """Plain gradient descent with a constant rate.

    Attributes:
        rate: of the mean neuron: each neuron's rate divided by m.
    """

    rate: float

    def summed(self, problem: _Regression) -> Float[Tensor, "fact d_vocab"]:
        """The residuals of all steps times the rate."""
        total, logits = torch.zeros_like(problem.logits), problem.logits.clone()
        gram, (_, _, right, weights) = self.rate * problem.gram, problem
        for _ in range(self.iterations):
            excess = logits.softmax(-1).sub_(right).mul_(weights)
            total.add_(excess)
            logits.sub_(gram @ excess)
        return self.rate * total


@dataclass(frozen=True)
class HeadFit(HeadDescent):
    """The same; its value is the largest lead of a wrong answer.

    It is negative exactly when every premise is answered.
    """

    def quantity(self, problem: _Regression) -> Float[Tensor, ""]:
        """The largest over premises of the best wrong logit less the right one."""
        logits, right = problem.logits, problem.right
        return ((logits - 1e9 * right).amax(-1) - (logits * right).sum(-1)).amax(-1)


@dataclass(frozen=True)
class AcceleratedDescent(_Descent):
    """Nesterov's method: the same objective, parameters and start as plain descent.

    The step is `boost` over L = 1/2 max eigenvalue of the weighted Gram matrix. A boost
    of 1 is safe, as a softmax's Hessian is at most 1/2; the momentum of step i is
    i / (i + 3) (Nesterov 1983). An ill-conditioned problem takes about the square root
    of the plain number of steps. The largest eigenvalue is that of the relation, which
    all facts share while their answers differ, so that its curvature is far below the
    bound: a boost above 1 is stable there.
    """

    boost: float = 1.0

    def summed(self, problem: _Regression) -> Float[Tensor, "fact d_vocab"]:
        """What plain steps with momentum sum up to."""
        gram, start, right, weights = problem
        roots = weights.sqrt()
        largest = torch.linalg.eigvalsh(roots * gram * roots.mT)[..., -1]
        step = 2 * self.boost / largest
        gram = step * gram
        here = ahead = torch.zeros_like(start)
        for i in range(self.iterations):
            excess = (start - gram @ ahead).softmax(-1).sub_(right).mul_(weights)
            before, here = here, excess.add_(ahead)
            ahead = here + i / (i + 3) * (here - before)
        return step * here


def descend(model: LinearBlock, stage: Stage, data: Premises) -> None:
    """A stage of the head as the engine trains it, on one model, in place."""
    for _ in range(stage.steps):
        value = stage.loss(model, data)
        if stage.stop_below is not None and float(value.detach()) < stage.stop_below:
            return
        (gradient,) = torch.autograd.grad(value, [model.head])
        with torch.no_grad():
            model.head.sub_(gradient)
