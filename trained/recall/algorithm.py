"""Algorithm 1: gradient descent on (theta, omega) from zero, perturbed once.

The gradients are written out, so a step of any number of replicas costs some tens of
microseconds; a test compares them with autograd and with the training engine.
Stage 1 on one prompt keeps the symmetry of the two pairs by averaging their
gradients: round-off alone would leave the saddle after about a hundred steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from .patterns import quadratic_forms, right_pattern

Array = NDArray[np.float64]
"""[replica, ...]; shapes as in `Outcome`."""

RECORDS = 100
"""Most points of each stage's path that are kept, evenly on a logarithmic scale."""


@dataclass(frozen=True)
class Schedule:
    """Steps, rates and the perturbation of Algorithm 1."""

    first_steps: int
    first_rate: float
    second_steps: int
    second_rate: float
    radius: float
    symmetric: bool
    """Whether stage 1 averages the gradients of equal roles of the examples."""

    @classmethod
    def warmup(cls, temperature: float) -> "Schedule":
        """Theorem 2: rates of order T^2, many steps."""
        rate = 100 * temperature**2
        return cls(20_000, rate, 20_000, rate, temperature**3, symmetric=True)

    @classmethod
    def general(cls, temperature: float) -> "Schedule":
        """Theorems 1 and 3: one large step, then (C/T) log(1/T) small ones."""
        inverse = torch.tensor(1 / temperature, dtype=torch.float64)
        return cls(
            first_steps=1,
            first_rate=float(100 * temperature**1.5 * inverse.log()),
            second_steps=int(20 * inverse * inverse.log()),
            second_rate=40 * temperature**2,
            radius=temperature**3,
            symmetric=False,
        )


@dataclass(frozen=True)
class Outcome:
    """Where Algorithm 1 was, after stage 1 and at the end, for every replica."""

    theta_first: Float[Tensor, "replica key"]
    omega_first: Float[Tensor, "replica key2"]
    theta: Float[Tensor, "replica key"]
    omega: Float[Tensor, "replica key2"]
    path_steps: Int[Tensor, " record"]
    path: Float[Tensor, "record replica key"]
    """Attention of EoS over training."""
    lowest_answer_probability: Float[Tensor, " replica"]
    """The least probability of the answer after stage 1."""

    @property
    def attention_first(self) -> Float[Tensor, "replica key"]:
        """Attention of EoS after stage 1."""
        return self.theta_first.softmax(-1)

    @property
    def attention(self) -> Float[Tensor, "replica key"]:
        """Attention of EoS at the end."""
        return self.theta.softmax(-1)


class Problem:
    """Prompts reduced to pattern counts, one set per replica, at one temperature.

    Numpy, because at this size a torch call costs ten times what it computes.
    """

    def __init__(
        self,
        counts: Int[Tensor, "replica row pattern"],
        *,
        n_subjects: int,
        n_examples: int,
        temperature: float,
    ) -> None:
        self.n_replicas = counts.shape[0]
        self.length = 2 * n_examples + 2
        self._temperature = temperature
        forms = quadratic_forms(n_examples).numpy()
        self._n_patterns = len(forms)
        self._stacked_forms = forms.transpose(1, 0, 2).reshape(self.length, -1)
        self._right = right_pattern(n_examples)
        self._counts = counts.double().numpy()
        self._n_others = float(n_subjects - n_examples - 1)

    def theta_gradient(self, theta: Array) -> Array:
        """The slope of L1: v (g - v.g), with g the slope of L1 in v."""
        v = _softmax(theta)
        shape = (self.n_replicas, self._n_patterns, self.length)
        products = (v @ self._stacked_forms).reshape(shape)
        logits = (products @ v[:, :, None])[:, :, 0] / self._temperature
        odds = self._counts * np.exp(logits - logits.max(1, keepdims=True))[:, None]
        weights = (odds / odds.sum(2, keepdims=True)).mean(1)
        weights[:, self._right] -= 1
        g = (weights[:, None] @ products)[:, 0]
        slope = v * (g - (v * g).sum(1, keepdims=True))
        return slope * (2 / self._temperature)

    def omega_gradient(self, omega: Array) -> Array:
        """The slope of L2, the loss of `patterns.answer_loss`."""
        q = _softmax(omega)
        excess = self._answer_probabilities(q)
        excess[:, -1] -= 1
        g = np.zeros_like(q)
        g[:, 0:-2:2] = (1 + q[:, -1:]) * excess
        g[:, -1] = (excess * q[:, 0:-2:2]).sum(1)
        slope = q * (g - (q * g).sum(1, keepdims=True))
        return slope * (2 / self._temperature)

    def answer_probability(self, omega: Array) -> Array:
        """The probability of the right answer, replica by replica."""
        return self._answer_probabilities(_softmax(omega))[:, -1]

    def _answer_probabilities(self, q: Array) -> Array:
        """Probabilities of the answers of the prompt's subjects, the query's last."""
        logits = 2 * (1 + q[:, -1:]) * q[:, 0:-2:2] / self._temperature
        top = logits.max(1, keepdims=True)
        odds = np.exp(logits - top)
        others = self._n_others * np.exp(-top)
        return odds / (odds.sum(1, keepdims=True) + others)


def algorithm1(
    problem: Problem,
    schedule: Schedule,
    *,
    perturbations: Sequence[torch.Generator | None],
) -> Outcome:
    """Run both stages, one replica per entry of `perturbations`.

    Args:
        problem: the prompts; its counts have one row block per replica.
        schedule: steps and rates.
        perturbations: the source of each replica's displacement; None: no
            displacement, and stage 2 keeps the symmetry of stage 1 (a control).
    """
    descent = _Descent(problem)
    held = np.full(problem.n_replicas, schedule.symmetric)
    descent.run(schedule.first_steps, schedule.first_rate, held)
    theta_first, omega_first = descent.theta.copy(), descent.omega.copy()
    for index, source in enumerate(perturbations):
        held[index] = source is None
        if source is not None:
            descent.displace(index, schedule.radius, source)
    descent.lowest_answer_probability.fill(1.0)
    descent.run(schedule.second_steps, schedule.second_rate, held)
    return Outcome(
        torch.from_numpy(theta_first),
        torch.from_numpy(omega_first),
        torch.from_numpy(descent.theta),
        torch.from_numpy(descent.omega),
        torch.tensor(descent.path_steps),
        torch.from_numpy(np.stack(descent.path)),
        torch.from_numpy(descent.lowest_answer_probability),
    )


class _Descent:
    """The moving state of Algorithm 1."""

    def __init__(self, problem: Problem) -> None:
        n, length = problem.n_replicas, problem.length
        self.problem = problem
        self.theta = np.zeros((n, length))
        self.omega = np.zeros((n, length + 1))
        self.path_steps: list[int] = []
        self.path: list[Array] = []
        self.lowest_answer_probability = np.ones(n)
        self._taken = 0

    def run(self, steps: int, rate: float, held: NDArray[np.bool_]) -> None:
        """Gradient descent; the replicas in `held` keep the pairs' symmetry."""
        kept = {0, *np.geomspace(1, max(steps, 1), RECORDS).astype(int).tolist()}
        symmetric = bool(held.any())
        for step in range(steps):
            if step in kept:
                self._record(step)
            gradient = self.problem.theta_gradient(self.theta)
            if symmetric:
                gradient[held] = _averaged(gradient[held])
            self.theta -= rate * gradient
            self.omega -= rate * self.problem.omega_gradient(self.omega)
        self._record(steps)
        self._taken += steps

    def displace(self, index: int, radius: float, source: torch.Generator) -> None:
        """Move one replica by a uniform draw from a ball."""
        length = self.theta.shape[1]
        size = 2 * length + 1
        noise = torch.randn(size, generator=source, dtype=torch.float64)
        share = torch.rand((), generator=source, dtype=torch.float64) ** (1 / size)
        moved = (noise * (radius * share / noise.norm())).numpy()
        self.theta[index] += moved[:length]
        self.omega[index] += moved[length:]

    def _record(self, step: int) -> None:
        self.path_steps.append(self._taken + step)
        self.path.append(_softmax(self.theta))
        answer = self.problem.answer_probability(self.omega)
        np.minimum(
            self.lowest_answer_probability, answer, out=self.lowest_answer_probability
        )


def _softmax(scores: Array) -> Array:
    odds = np.exp(scores - scores.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def _averaged(gradient: Array) -> Array:
    """The gradient with equal entries for the examples' subjects and answers."""
    result = gradient.copy()
    for role in (slice(0, -2, 2), slice(1, -2, 2)):
        result[:, role] = gradient[:, role].mean(1, keepdims=True)
    return result
