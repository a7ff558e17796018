"""Can kernel regression tell a task's templates apart on symbols it never saw?

The r x r matrix N of kernel values between templates under disjoint substitutions
decides (Lemmas 4.5 and 4.6): if it is singular, every training sample looks the same
to an unseen one. How many samples are needed is judged by `samples_needed`, not by the
condition number alone: a kernel under which all distinct strings are unrelated is well
conditioned and useless.
"""

from functools import cache
from itertools import permutations
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trained.config import require

from .kernel import AttentionKernel, Tokens
from .lift import Kernel, TransformerKernel
from .sampler import Strings
from .tasks import Task

CLS = 0
"""The token that ends the strings of `instances`; regular tokens follow."""

Square = Float[Tensor, "*replicate template template"]


class Estimate(NamedTuple):
    """A number with its standard error."""

    value: float
    error: float

    @property
    def in_errors(self) -> float:
        """The value in units of its standard error, or of rounding if that is more."""
        return self.value / max(self.error, 1e-12)


def instances(task: Task, *, copy: int = 0) -> Tokens:
    """One string per template, CLS last; copies have no symbol in common.

    >>> from .tasks import task
    >>> instances(task("same_different"), copy=1).tolist()
    [[3, 3, 0], [3, 4, 0]]
    """
    first = 1 + len(task.regular) + copy * task.n_wildcards
    regular = {token: 1 + place for place, token in enumerate(task.regular)}
    strings = []
    for template in task.templates:
        drawn = {name: first + i for i, name in enumerate(template.wildcards)}
        numbers = regular | drawn
        strings.append([*(numbers[symbol] for symbol in template.symbols), CLS])
    return torch.tensor(strings)


def template_matrix(kernel: Kernel, task: Task) -> Square:
    """N[i, j] = K(sub(z_i, s), sub(z_j, s')) with disjoint ranges of s and s'."""
    return kernel(instances(task, copy=0), instances(task, copy=1))


def template_replicates(
    kernel: TransformerKernel | AttentionKernel, task: Task
) -> Square:
    """N once per scrambling of the kernel's integration points."""
    return kernel.replicates(instances(task, copy=0), instances(task, copy=1))


def least_eigenvalue(kernel: Kernel, task: Task) -> Estimate:
    """lambda_min(N); its standard error is that of the kernel's replicates, if any."""
    found = torch.linalg.eigvalsh(template_matrix(kernel, task))[0]
    if not isinstance(kernel, TransformerKernel):
        return Estimate(float(found), 0.0)
    each = torch.linalg.eigvalsh(template_replicates(kernel, task))[:, 0]
    return Estimate(float(found), _standard_error(each))


def inverse_condition(kernel: Kernel, task: Task) -> float:
    """lambda_min(N) / lambda_max(N), in [0, 1]; 0 if N is singular."""
    sizes = torch.linalg.eigvalsh(template_matrix(kernel, task))
    return float(sizes[0].clamp(min=0) / sizes[-1])


def samples_needed(kernel: Kernel, task: Task) -> float:
    """n0 = r delta / lambda_min(N), the scale of n at which regression generalises.

    delta is the mean over templates of K(x, x) - N[i, i]: how much more a sample
    resembles itself than others of its template. With r templates and n samples the
    kernel matrix is about N in blocks of n / r plus delta I, so a label along the
    least eigenvector shrinks by 1 / (1 + n / n0) and the squared error is about
    (1 + n / n0)^-2. For the two templates of same/different n0 = 2 delta / lambda_min.
    """
    strings = instances(task)
    own = kernel(strings, strings).diagonal()
    delta = float((own - template_matrix(kernel, task).diagonal()).mean())
    least = least_eigenvalue(kernel, task).value
    return len(strings) * delta / least if least > 0 else float("inf")


def permutation_gap(kernel: Kernel, task: Task) -> Estimate:
    """Least of sum_i N[i, i] - N[i, sigma(i)] over permutations that move something.

    Lemma 4.6 asks that it is not 0 for the attention kernel; then almost every cosine
    lift of it has a nonsingular N. At most 8 templates.
    """
    found = _gaps(template_matrix(kernel, task))
    least = int(found.argmin())
    if not isinstance(kernel, AttentionKernel):
        return Estimate(float(found[least]), 0.0)
    each = _gaps(template_replicates(kernel, task))[:, least]
    return Estimate(float(found[least]), _standard_error(each))


def ridge_predictions(
    kernel: Kernel, train: Strings, tokens: Tokens, *, ridge: float = 1e-3
) -> Float[Tensor, " example"]:
    """Kernel ridge regression, y^T (K + ridge I)^-1 k(x); Eq. 4."""
    gram = kernel(train.tokens, train.tokens)
    gram = gram + ridge * torch.eye(len(gram), dtype=gram.dtype)
    weights = torch.linalg.solve(gram, train.targets.double())
    return kernel(tokens, train.tokens) @ weights


def unseen_predictions(
    kernel: Kernel, train: Strings, test: Strings, task: Task
) -> Float[Tensor, " example"]:
    """Ridge predictions on test strings, none of whose symbols was trained on.

    Raises:
        BadInput: Training and test strings share more than regular tokens and CLS.
    """
    cls = int(train.tokens[0, -1])
    allowed = {*range(len(task.regular)), cls}
    both = _symbols(train.tokens) & _symbols(test.tokens) - allowed
    require(not both, f"symbols {sorted(both)[:5]} are in training and test strings")
    return ridge_predictions(kernel, train, test.tokens)


def _symbols(tokens: Tokens) -> set[int]:
    return set(tokens.flatten().tolist())


@cache
def _moving(size: int) -> Int[Tensor, "permutation template"]:
    """Every permutation but the identity."""
    return torch.tensor(list(permutations(range(size)))[1:])


def _gaps(matrix: Square) -> Float[Tensor, "*replicate permutation"]:
    size = matrix.shape[-1]
    require(size <= 8, f"{size} templates: permutations are listed for at most 8")
    moved = _moving(size)
    own = matrix.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
    return own - matrix[..., torch.arange(size), moved].sum(-1)


def _standard_error(replicates: Float[Tensor, " replicate"]) -> float:
    return float(replicates.std() / len(replicates) ** 0.5)
