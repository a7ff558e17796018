"""Do the theorems hold where they can be solved, and does training go there?

Values that need no training are one per N, not per seed.
"""

from dataclasses import replace
from functools import cache

from jaxtyping import Float
from torch import Tensor

from circuits.claims import Observed
from probes.weights import numerical_rank
from trained.bridge.arms import DIRECTION_SIZE, Recipe, Task
from trained.bridge.program import (
    Norm,
    Solution,
    duality_gap,
    one_hop_constraints,
    solve,
    two_hop_margins,
)
from trained.bridge.symmetric import solve_symmetric

from .context import Context, Specimen

TIE_SIZE, TIE_COMPLEXITY = 8, 2

Matrix = Float[Tensor, "input output"]


def observe(context: Context) -> dict[str, Observed]:
    """Both theorems and what follows from them; the trained direction."""
    sizes = context.config.theory_sizes
    return {
        "bridge.theory.theorem1": Observed.of(
            [least_margin(n, identity=True) for n in sizes],
            [least_margin(n, identity=True, norm="frobenius") for n in sizes],
        ),
        "bridge.theory.theorem2": Observed.of(
            [_from_closed_form(n, identity=False) for n in sizes],
            [_from_closed_form(n, identity=True) for n in sizes],
        ),
        "bridge.theory.reduction": Observed.of(
            [_from_symmetric(n, identity=True) for n in sizes],
            [_from_symmetric(n, identity=False) for n in sizes],
        ),
        "bridge.theory.certificate": Observed.of(
            [_relative_gap(n) for n in sizes], [_spoiled_gap(n) for n in sizes]
        ),
        "bridge.theory.rank": Observed.of(
            [_relative_rank(n, identity=True) for n in sizes],
            [_relative_rank(n, identity=False) for n in sizes],
        ),
        "bridge.theory.tie": Observed.of([_tie(identity=True)], [_tie(identity=False)]),
        **_direction(context),
    }


@cache
def optimum(
    size: int, complexity: int = 1, *, identity: bool, norm: Norm = "nuclear"
) -> Solution:
    """The solved program of a training set; solved once per process."""
    facts = one_hop_constraints(size, complexity, identity=identity)
    return solve(facts, norm=norm)


def least_margin(size: int, *, identity: bool, norm: Norm = "nuclear") -> float:
    """Least two-hop margin where the least training margin is 1."""
    solution = optimum(size, identity=identity, norm=norm)
    margins = two_hop_margins(solution.matrix, size)
    return float(margins.amin()) / solution.train_margin


def _from_closed_form(size: int, *, identity: bool) -> float:
    """Largest distance of a two-hop margin from -N / (N + 1)."""
    solution = optimum(size, identity=identity)
    margins = two_hop_margins(solution.matrix, size) / solution.train_margin
    return float((margins + size / (size + 1)).abs().amax())


def _from_symmetric(size: int, *, identity: bool) -> float:
    """Distance of the full program with identity from the symmetric one."""
    reduced = solve_symmetric(size, identity=identity).two_hop_margin
    return abs(least_margin(size, identity=True) - reduced)


def _relative_gap(size: int) -> float:
    """The larger relative duality gap of both arms; infinite if a fact is missed."""
    return max(
        _gap(size, identity, optimum(size, identity=identity))
        for identity in (True, False)
    )


def _spoiled_gap(size: int) -> float:
    solution = optimum(size, identity=True)
    return _gap(size, True, replace(solution, multipliers=solution.multipliers.flip(0)))


def _gap(size: int, identity: bool, solution: Solution) -> float:
    facts = one_hop_constraints(size, 1, identity=identity)
    return duality_gap(facts, solution) / solution.objective


def _relative_rank(size: int, *, identity: bool) -> float:
    matrix = optimum(size, identity=identity).matrix
    return int(numerical_rank(matrix)) / size


def _tie(*, identity: bool) -> float:
    solution = optimum(TIE_SIZE, TIE_COMPLEXITY, identity=identity)
    margins = two_hop_margins(solution.matrix, TIE_SIZE, TIE_COMPLEXITY)
    return float(margins.abs().amax()) / solution.train_margin


def _direction(context: Context) -> dict[str, Observed]:
    own, other, positive = [], [], {}
    tasks: tuple[Task, Task] = ("identity", "none")
    for task, rival in (tasks, tasks[::-1]):
        specimens = context.specimens(Recipe("direction", task=task))
        own.append([direction_cosine(s, task) for s in specimens])
        other.append([direction_cosine(s, rival) for s in specimens])
        positive[task] = [positive_margins(s) for s in specimens]
    return {
        "bridge.direction.cosine": Observed.of(
            [min(pair) for pair in zip(*own, strict=True)],
            [max(pair) for pair in zip(*other, strict=True)],
        ),
        "bridge.direction.signs": Observed.of(positive["identity"], positive["none"]),
    }


def direction_cosine(specimen: Specimen, task: Task) -> float:
    """Cosine of the trained Z with an optimum, rows centred, in [-1, 1]."""
    trained = _row_centred(logit_matrix(specimen))
    best = optimum(DIRECTION_SIZE, identity=task == "identity").matrix
    target = _row_centred(best)
    return float((trained * target).sum() / (trained.norm() * target.norm()))


def positive_margins(specimen: Specimen) -> float:
    """Share of two-hop queries with a positive margin, in [0, 1]."""
    margins = two_hop_margins(logit_matrix(specimen), specimen.world.n_subjects)
    return float((margins > 0).double().mean())


def logit_matrix(specimen: Specimen) -> Matrix:
    """Z of a trained Emb-MLP, in double precision."""
    matrix: Tensor = specimen.model.logit_matrix  # type: ignore[assignment]
    return matrix.detach().double()


def _row_centred(matrix: Matrix) -> Matrix:
    """A constant added to a row of Z changes no answer."""
    return matrix - matrix.mean(dim=1, keepdim=True)
