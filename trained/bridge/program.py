"""Does the cheapest matrix that fits the one-hop facts also compose them?

The embedding model's logits are sums of rows of Z = E W. Training is biased towards
the solution of a convex program (Eq. 2 of "Identity Bridge: Enabling Implicit Reasoning
via Shared Latent Memory", arXiv 2509.24653):

    minimise ||Z||_*  such that  sum_{u in x} (Z[u, y] - Z[u, t]) >= 1
    for every training pair (x, y) and every output t other than y.

This file solves it without assuming its symmetry, with a dual certificate. A two-hop
margin that is not positive with the identity task (Theorem 1), or not negative without
it (Theorem 2), would falsify the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from probes.weights import numerical_rank
from trained.threads import threads

from .symmetric import solve_symmetric

Norm = Literal["nuclear", "frobenius"]
"""Bias of a factorised model, and of its control that trains Z itself."""

Fact = tuple[Sequence[int], int]
"""Rows of Z that are summed, and the column that must win."""


@dataclass(frozen=True)
class Vocabulary:
    """Rows and columns of Z for N subjects with `complexity` (kappa) objects each.

    Rows are subjects a, bridges b (slice-major), relations r1 and then r2; columns are
    bridges b and objects c (Section 3.1). With size 3 and complexity 2 the rows are
    a 0-2, b 3-8, r1 9-10, r2 11; the columns b 0-5, c 6-8.
    """

    size: int
    complexity: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.complexity < self.size:
            found = f"complexity {self.complexity} at size {self.size}"
            raise ValueError(f"{found}: must be at least 1 and below the size")

    @property
    def n_bridges(self) -> int:
        """Number of bridges, complexity * size."""
        return self.complexity * self.size

    @property
    def n_inputs(self) -> int:
        """Number of rows of Z."""
        return self.relation_row(self.complexity) + 1

    @property
    def n_outputs(self) -> int:
        """Number of columns of Z."""
        return self.n_bridges + self.size

    def bridge_row(self, relation: int, subject: int) -> int:
        """Row of b_{k,i}."""
        return self.size + self.bridge_column(relation, subject)

    def relation_row(self, relation: int) -> int:
        """Row of r1_k; `complexity` itself names r2."""
        return self.size + self.n_bridges + relation

    def bridge_column(self, relation: int, subject: int) -> int:
        """Column of b_{k,i}."""
        return relation * self.size + subject

    def object_column(self, relation: int, subject: int) -> int:
        """Column of the two-hop answer c_{pi_k(i)}, pi_k(i) = (i + k) mod N."""
        return self.n_bridges + (subject + relation) % self.size

    def pairs(self) -> list[tuple[int, int]]:
        """Every (relation k, subject i), slice-major."""
        return [(k, i) for k in range(self.complexity) for i in range(self.size)]


@dataclass(frozen=True)
class Constraints:
    """The facts a matrix must fit, as a linear map from Z to logits."""

    inputs: Float[Tensor, "example input"]
    """How often each row of Z is summed."""
    labels: Int[Tensor, " example"]
    n_outputs: int


@dataclass(frozen=True)
class Solution:
    """A minimiser of the margin program and what is needed to check it."""

    matrix: Float[Tensor, "input output"]
    multipliers: Float[Tensor, "example output"]
    """Non-negative dual variable of each margin; zero at the label."""
    norm: Norm
    objective: float
    """Norm of `matrix`."""
    train_margin: float
    iterations: int
    residual: float
    """Larger of the relative primal and dual residuals at the last iteration."""


def one_hop_facts(size: int, complexity: int, *, identity: bool) -> list[Fact]:
    """Training facts of Section 3.1: both hops, and [b] -> b if `identity`.

    >>> one_hop_facts(3, 1, identity=True)[::3]
    [((0, 6), 0), ((3, 7), 3), ((3,), 0)]
    """
    vocabulary = Vocabulary(size, complexity)
    hop1, hop2, zero_hop = list[Fact](), list[Fact](), list[Fact]()
    for k, i in vocabulary.pairs():
        bridge, column = vocabulary.bridge_row(k, i), vocabulary.bridge_column(k, i)
        hop1.append(((i, vocabulary.relation_row(k)), column))
        second = (bridge, vocabulary.relation_row(complexity))
        hop2.append((second, vocabulary.object_column(k, i)))
        zero_hop.append(((bridge,), column))
    return hop1 + hop2 + (zero_hop if identity else [])


def constraints(facts: Sequence[Fact], *, n_inputs: int, n_outputs: int) -> Constraints:
    """Margin constraints of any list of facts.

    Raises:
        ValueError: No facts, an id out of range, or two facts that contradict.
    """
    if not facts:
        raise ValueError("the program needs at least one fact")
    inputs = torch.zeros(len(facts), n_inputs, dtype=torch.float64)
    seen: dict[tuple[int, ...], int] = {}
    for example, (tokens, label) in enumerate(facts):
        if not tokens or not all(0 <= token < n_inputs for token in tokens):
            raise ValueError(f"fact {example}: inputs {tokens} not in [0, {n_inputs})")
        if not 0 <= label < n_outputs:
            raise ValueError(f"fact {example}: label {label} not in [0, {n_outputs})")
        if seen.setdefault(tuple(sorted(tokens)), label) != label:
            raise ValueError(f"fact {example}: {tokens} has a second label {label}")
        for token in tokens:
            inputs[example, token] += 1
    labels = torch.tensor([label for _, label in facts], dtype=torch.int64)
    return Constraints(inputs, labels, n_outputs)


def one_hop_constraints(size: int, complexity: int, *, identity: bool) -> Constraints:
    """Margin constraints of the paper's training set."""
    facts = one_hop_facts(size, complexity, identity=identity)
    sizes = Vocabulary(size, complexity)
    return constraints(facts, n_inputs=sizes.n_inputs, n_outputs=sizes.n_outputs)


def margins(
    logits: Float[Tensor, "example output"], labels: Int[Tensor, " example"]
) -> Float[Tensor, " example"]:
    """Logit of the label minus the largest other logit; any real number.

    >>> margins(torch.tensor([[3.0, 1.0, 2.5]]), torch.tensor([0]))
    tensor([0.5000])
    """
    label = labels.unsqueeze(-1)
    others = logits.scatter(-1, label, -torch.inf)
    return logits.gather(-1, label).squeeze(-1) - others.amax(dim=-1)


def train_margin(matrix: Float[Tensor, "input output"], facts: Constraints) -> float:
    """Smallest margin of a matrix over all facts; 1 at an optimum of the program."""
    logits = facts.inputs.to(matrix) @ matrix
    return float(margins(logits, facts.labels.to(matrix.device)).amin())


def two_hop_margins(
    matrix: Float[Tensor, "input output"], size: int, complexity: int = 1
) -> Float[Tensor, " example"]:
    """Margins m of the unseen queries (a_i, r1_k, r2), slice-major.

    m = L[c] - max_{t != c} L[t] with L = Z[a_i] + Z[r1_k] + Z[r2] and the true object c
    (Section 4.3). Positive where the query is answered correctly over all of V_out.
    """
    vocabulary = Vocabulary(size, complexity)
    relation, answer = vocabulary.relation_row, vocabulary.object_column
    queries = [[i, relation(k), relation(complexity)] for k, i in vocabulary.pairs()]
    labels = [answer(k, i) for k, i in vocabulary.pairs()]
    logits = matrix[torch.tensor(queries)].sum(dim=1)
    return margins(logits, torch.tensor(labels, device=matrix.device))


def _norms(matrix: Tensor, norm: Norm) -> tuple[float, float]:
    """The norm and its dual norm."""
    if norm == "frobenius":
        length = float(torch.linalg.matrix_norm(matrix))
        return length, length
    values = torch.linalg.svdvals(matrix)
    return float(values.sum()), float(values.amax())


def _shrink(matrix: Tensor, threshold: float, norm: Norm) -> Tensor:
    """Proximal map of threshold * norm."""
    if norm == "frobenius":
        length = float(torch.linalg.matrix_norm(matrix))
        return matrix * max(0.0, 1 - threshold / max(length, threshold))
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return (left * (values - threshold).clamp(min=0)) @ right


def _project(logits: Tensor, facts: Constraints) -> Tensor:
    """Nearest logits whose every margin is at least 1, row by row.

    The label rises to u and the others are clipped at u - 1, where u is the largest of
    the running means of (label, 1 + others in descending order).
    """
    label = facts.labels[:, None]
    own = logits.gather(-1, label)
    rivals = (logits + 1).scatter(-1, label, -torch.inf).sort(descending=True).values
    totals = torch.cat([own, rivals[:, :-1]], dim=-1).cumsum(dim=-1)
    counts = torch.arange(1, totals.shape[-1] + 1, dtype=logits.dtype)
    raised = (totals / counts).amax(dim=-1, keepdim=True)
    return torch.minimum(logits, raised - 1).scatter(-1, label, raised)


@threads(1)
def solve(
    facts: Constraints,
    *,
    norm: Norm = "nuclear",
    tolerance: float = 1e-9,
    max_iterations: int = 20_000,
    penalty: float = 0.25,
    tilt: Float[Tensor, "input output"] | None = None,
) -> Solution:
    """Minimise the norm of Z under the margin constraints, by ADMM in float64.

    With a tilt G, minimise ||Z|| + <G, Z>: a small one chooses among several optima.

    Splits Z = Y (shrunk singular values) and X Z = L (projected logits; X sums rows),
    here stacked as K Z = S. Splitting at the logits, not at each margin, leaves
    K'K = I + X'X to factor once: of size V_in, where I + A'A has V_in * V_out.

    Raises:
        RuntimeError: The residuals stay above `tolerance`; nothing may be concluded.
    """
    n_inputs = facts.inputs.shape[1]
    shift = 0.0 if tilt is None else tilt.double() / penalty
    stack = torch.cat([torch.eye(n_inputs), facts.inputs]).double()
    factor = torch.linalg.cholesky(stack.T @ stack)
    split = torch.zeros(stack.shape[0], facts.n_outputs, dtype=torch.float64)
    dual, residual, iteration = split, torch.inf, 0
    while not residual <= tolerance:  # a NaN must not pass for convergence
        if iteration == max_iterations:
            raise RuntimeError(f"residual {residual:.1e} after {iteration} iterations")
        iteration += 1
        fitted = stack @ torch.cholesky_solve(stack.T @ (split - dual), factor)
        # Over-relaxed by 1.6; ADMM converges for any factor in (0, 2).
        point = 1.6 * fitted - 0.6 * split + dual
        shrunk = _shrink(point[:n_inputs] - shift, 1 / penalty, norm)
        last, split = split, torch.cat([shrunk, _project(point[n_inputs:], facts)])
        dual = point - split
        moved = (stack.T @ (split - last)).norm() / dual.norm()
        missed = (fitted - split).norm() / split.norm()
        residual = float(torch.maximum(missed, moved))
    matrix, label = split[:n_inputs], facts.labels[:, None]
    return Solution(
        matrix=matrix,
        multipliers=penalty * dual[n_inputs:].scatter(-1, label, 0.0),
        norm=norm,
        objective=_norms(matrix, norm)[0],
        train_margin=train_margin(matrix, facts),
        iterations=iteration,
        residual=residual,
    )


def duality_gap(facts: Constraints, solution: Solution) -> float:
    """Rigorous bound on how far the solution is above the optimum; at least 0.

    For any lambda >= 0, weak duality gives optimum >= sum(lambda) / ||A'(lambda)||_dual
    (dual of the nuclear norm: the spectral norm), and Z / margin(Z) is feasible, so

        gap = ||Z|| / margin(Z) - sum(lambda) / ||A'(lambda)||_dual.

    Uses only `matrix`, `multipliers` and `norm`; infinite if a fact is not fitted.
    """
    margin = train_margin(solution.matrix, facts)
    if margin <= 0:
        return float("inf")
    label = facts.labels[:, None]
    weights = solution.multipliers.clamp(min=0).scatter(-1, label, 0.0)
    gradient = facts.inputs.T @ (-weights).scatter(
        -1, label, weights.sum(-1, keepdim=True)
    )
    lower = float(weights.sum()) / _norms(gradient, solution.norm)[1]
    return _norms(solution.matrix, solution.norm)[0] / margin - lower


TILTED_TOLERANCE = 1e-7
"""Of tilted programs: there are many, and a sign is read off them."""


class Tilted(NamedTuple):
    """Over all tilts, the largest two-hop margin and the largest relative loss."""

    largest_margin: float
    loss: float


@dataclass(frozen=True)
class Optimum:
    """A solved margin program of N subjects."""

    size: int
    complexity: int
    identity: bool
    solution: Solution

    @property
    def margins(self) -> Float[Tensor, " query"]:
        """Two-hop margins where the least training margin is 1."""
        found = two_hop_margins(self.solution.matrix, self.size, self.complexity)
        return found / self.solution.train_margin

    @property
    def least_margin(self) -> float:
        """The least of them."""
        return float(self.margins.amin())

    @property
    def largest_margin(self) -> float:
        """The largest of them."""
        return float(self.margins.amax())

    @property
    def largest_size(self) -> float:
        """The largest |margin|; 0 is a tie."""
        return float(self.margins.abs().amax())

    @property
    def from_closed_form(self) -> float:
        """Largest distance of a margin from -N / (N + 1)."""
        return float((self.margins + self.size / (self.size + 1)).abs().amax())

    @property
    def relative_gap(self) -> float:
        """Duality gap over the objective; infinite if a fact is missed."""
        facts = one_hop_constraints(self.size, self.complexity, identity=self.identity)
        return duality_gap(facts, self.solution) / self.solution.objective

    @property
    def relative_rank(self) -> float:
        """Rank of Z over N."""
        return int(numerical_rank(self.solution.matrix)) / self.size

    def from_symmetric(self, *, identity: bool) -> float:
        """Distance of the least margin from that of the symmetric program."""
        reduced = solve_symmetric(self.size, identity=identity).two_hop_margin
        return abs(self.least_margin - reduced)

    @property
    def above_symmetric(self) -> float:
        """Relative distance of the objective from that of the symmetric program."""
        reduced = solve_symmetric(self.size, identity=self.identity)
        full = self.solution.objective / self.solution.train_margin
        return abs(full / (reduced.objective / reduced.train_margin) - 1)

    def tilted(self, count: int, weight: float, *, generator: Generator) -> "Tilted":
        """Other optima: minimisers of the norm plus weight * <G, Z> for random G."""
        facts = one_hop_constraints(self.size, self.complexity, identity=self.identity)
        lowest = self.solution.objective / self.solution.train_margin
        margin, loss = -torch.inf, -torch.inf
        for _ in range(count):
            draw = torch.randn(self.solution.matrix.shape, generator=generator)
            found = solve(facts, tilt=weight * draw, tolerance=TILTED_TOLERANCE)
            other = replace(self, solution=found)
            margin = max(margin, other.largest_margin)
            loss = max(loss, found.objective / found.train_margin / lowest - 1)
        return Tilted(float(margin), float(loss))

    def spoiled(self) -> "Optimum":
        """The same matrix with its multipliers in reverse order."""
        multipliers = self.solution.multipliers.flip(0)
        return replace(self, solution=replace(self.solution, multipliers=multipliers))
