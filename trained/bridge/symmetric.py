"""Do the signs of both theorems hold at sizes no matrix solver reaches?

With one object per subject, averaging an optimum of the margin program over
relabellings of the N pairs leaves an optimum. Its entity blocks are p I + q J and its
relation rows are constant per class, so 12 numbers remain (Section 4.3 of "Identity
Bridge", reconstructed). They are found by an interior-point method on the
semidefinite form, which shares no step with the unreduced solver of `program`: a
disagreement between the two would falsify either.
"""

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from probes.weights import nuclear_norm
from trained.threads import threads


@dataclass(frozen=True)
class Symmetric:
    """An optimum in the symmetric family, for N pairs.

    Entity block (x, y) of Z is P[x, y] I + Q[x, y] J with rows x in (subject, bridge)
    and columns y in (bridge, object); the row of relation x is R[x, y] on class y.
    """

    size: int
    identity: bool
    """Whether the identity facts were trained."""
    diagonal: Float[Tensor, "2 2"]
    """P."""
    constant: Float[Tensor, "2 2"]
    """Q."""
    relations: Float[Tensor, "2 2"]
    """R."""
    gap: float
    """Bound on the objective's excess over the optimum, from the barrier."""

    @property
    def objective(self) -> float:
        """Nuclear norm of the full matrix.

        ||Z||_* = (N - 1) ||P||_* + ||T||_* with T = [P + N Q ; sqrt(N) R].
        """
        top = self.diagonal + self.size * self.constant
        stacked = torch.cat([top, self.size**0.5 * self.relations])
        rest = nuclear_norm(self.diagonal)
        return float((self.size - 1) * rest + nuclear_norm(stacked))

    @property
    def relative_gap(self) -> float:
        """The gap over the objective."""
        return self.gap / self.objective

    @property
    def train_margin(self) -> float:
        """Smallest margin over the training facts; 1 at the optimum."""
        found = _margins(self.diagonal, self.constant, self.relations)
        return float((found if self.identity else found[:6]).amin())

    @property
    def two_hop_margins(self) -> Float[Tensor, "3"]:
        """Margins of (a_i, r1, r2) over another object, its bridge, another bridge."""
        own = self.diagonal[0]
        shared = self.constant[0] + self.relations.sum(dim=0)
        lead = own[1] + shared[1] - shared[0]
        return torch.stack([own[1], lead - own[0], lead])

    @property
    def two_hop_margin(self) -> float:
        """Smallest of `two_hop_margins`, the m of Theorems 1 and 2."""
        return float(self.two_hop_margins.amin())


def random_symmetric(size: int, *, generator: Generator) -> Symmetric:
    """A standard normal member of the family; no optimum of anything."""
    draw = torch.randn(3, 2, 2, generator=generator, dtype=torch.float64)
    diagonal, constant, relations = draw
    return Symmetric(size, True, diagonal, constant, relations, gap=torch.inf)


def expand(solution: Symmetric) -> Float[Tensor, "input output"]:
    """The full Z, in the row and column order of `program.Vocabulary`."""
    size = solution.size
    eye = torch.eye(size, dtype=torch.float64)
    ones = torch.ones(size, size, dtype=torch.float64)
    entities = torch.kron(solution.diagonal, eye) + torch.kron(solution.constant, ones)
    return torch.cat([entities, torch.kron(solution.relations, ones[:1])])


def _margins(diagonal: Tensor, constant: Tensor, relations: Tensor) -> Tensor:
    """Nine margins, linear in (P, Q, R): three each of hop 1, hop 2 and identity.

    Over another token of the label's class, the same index of the other class, and
    another index of the other class.
    """
    shared = [
        constant[0] + relations[0],
        constant[1] + relations[1],
        constant[1],
    ]
    cases = zip((0, 1, 1), (0, 1, 0), shared, strict=True)
    found: list[Tensor] = []
    for row, label, level in cases:
        peak, rival = diagonal[row, label], diagonal[row, 1 - label]
        lead = peak + level[label] - level[1 - label]
        found += [peak, lead - rival, lead]
    return torch.stack(found)


@dataclass(frozen=True)
class _Semidefinite:
    """Minimise <cost, v> where sum_i v_i basis_i is semidefinite and rows v >= 1.

    ||M||_* <= s if and only if [[A, M], [M', B]] is semidefinite for some A and B with
    trace A + trace B <= 2 s. Two such blocks hold P and T / N: no entry grows with N.
    """

    basis: Float[Tensor, "variable 10 10"]
    cost: Float[Tensor, " variable"]
    rows: Float[Tensor, "margin variable"]


def _unpack(point: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Read P, Q and R from the off-diagonal blocks of the semidefinite variable."""
    diagonal, scaled = point[:2, 2:4], point[4:8, 8:]
    return diagonal, scaled[:2] - diagonal / size, size**0.5 * scaled[2:]


def _semidefinite(size: int, *, identity: bool) -> _Semidefinite:
    """The program of N pairs, divided by N: 10 + 21 entries of symmetric blocks."""
    entries = [(i, j) for i in range(4) for j in range(i + 1)]
    entries += [(i, j) for i in range(4, 10) for j in range(4, i + 1)]
    basis = torch.zeros(len(entries), 10, 10, dtype=torch.float64)
    for variable, (i, j) in enumerate(entries):
        basis[variable, i, j] = basis[variable, j, i] = 1
    weight = torch.full((10,), 0.5, dtype=torch.float64)
    weight[:4] *= (size - 1) / size
    cost = torch.einsum("nii,i->n", basis, weight)
    rows = torch.stack([_margins(*_unpack(step, size)) for step in basis], dim=1)
    return _Semidefinite(basis, cost, rows if identity else rows[:6])


def _start(program: _Semidefinite, size: int) -> Tensor:
    """A strictly feasible vector: margins of 2 or more, wide semidefinite blocks."""
    diagonal = torch.tensor([[2.0, 0.0], [2.0, 2.0]], dtype=torch.float64)
    constant = torch.tensor([[0.0, 0.0], [2.0, -2.0]], dtype=torch.float64)
    relations = torch.tensor([[4.0, -4.0], [-6.0, 6.0]], dtype=torch.float64)
    point = 40 * torch.eye(10, dtype=torch.float64)
    point[:2, 2:4] = diagonal
    point[4:6, 8:] = constant + diagonal / size
    point[6:8, 8:] = relations / size**0.5
    # Each basis element holds one entry, twice off the diagonal; only one is filled.
    return torch.einsum("nij,ij->n", program.basis, point)


def _newton(
    program: _Semidefinite, values: Tensor, weight: float
) -> tuple[Tensor, float]:
    """Newton step and decrement of the barrier, which is self-concordant.

    The barrier is weight <cost, v> - log det X(v) - sum log(rows v - 1).
    """
    inverse = torch.linalg.inv(torch.einsum("n,nij->ij", values, program.basis))
    pull = torch.einsum("ij,njk->nik", inverse, program.basis)
    scaled = program.rows / (program.rows @ values - 1)[:, None]
    gradient = weight * program.cost - torch.einsum("nii->n", pull) - scaled.sum(dim=0)
    hessian = torch.einsum("nij,mji->nm", pull, pull) + scaled.T @ scaled
    # Unit diagonal before solving: entries of the Hessian differ by many orders.
    scale = hessian.diagonal().rsqrt()
    step = scale * torch.linalg.solve(
        scale[:, None] * hessian * scale, scale * gradient
    )
    return -step, float(step @ gradient) ** 0.5


def _centre(program: _Semidefinite, values: Tensor, weight: float) -> Tensor:
    """Minimise the barrier from a feasible point by damped Newton steps.

    Steps of length 1 / (1 + decrement) stay feasible and always descend (Nesterov and
    Nemirovskii 1994), so there is no line search to be defeated by rounding.
    """
    for _ in range(1000):
        step, decrement = _newton(program, values, weight)
        values = values + step / (1 + decrement)
        if decrement < 1e-3:
            return values
    raise RuntimeError(f"decrement {decrement:.1e} at barrier weight {weight:.1e}")


@cache
@threads(1)
def solve_symmetric(
    size: int, *, identity: bool, tolerance: float = 1e-10
) -> Symmetric:
    """Solve the margin program of N pairs, one object each, in its symmetric family.

    A path-following interior-point method; the cost does not depend on N.

    Args:
        size: N, at least 2.
        identity: Whether the facts [b] -> b are trained.
        tolerance: Largest gap to the optimum, relative to N.
    """
    if size < 2 or (size > 10_000 and not identity):
        raise ValueError(
            f"size {size} must be at least 2 and, without identity, at most 10000: "
            "there ||P||_* is flat and rounding hides the terms that fix the margin"
        )
    program = _semidefinite(size, identity=identity)
    # Each centred point is within (number of barrier terms) / weight of the optimum.
    terms = 10 + program.rows.shape[0]
    values, weight = _start(program, size), 1.0
    while terms / weight > tolerance:
        weight *= 2
        values = _centre(program, values, weight)
    point = torch.einsum("n,nij->ij", values, program.basis)
    diagonal, constant, relations = _unpack(point, size)
    return Symmetric(
        size, identity, diagonal, constant, relations, gap=size * terms / weight
    )
