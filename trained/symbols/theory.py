"""What Theorem 4.4 says, without training a network.

Can kernel regression tell a task's templates apart on symbols it never saw? The r x r
matrix N of kernel values between templates under disjoint substitutions decides (Lemmas
4.5 and 4.6): if it is singular, every training sample looks the same to an unseen one.
How many samples are needed is judged by `samples_needed`, not by the condition number
alone: a kernel under which all distinct strings are unrelated is well conditioned and
useless. `bank_kernel` is a finite network's kernel, what the formula is checked against
(Appendix H). "When can transformers reason with abstract symbols?"
"""

from functools import cache
from itertools import permutations
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Generator, Tensor

from probes.statistics import standard_error
from trained.config import require
from trained.task import Batch

from .kernel import AttentionKernel, Kernel, Tokens, TransformerKernel
from .tasks import Task

BANK_D_HEAD = 64
"""Width of the random heads; their law does not depend on it."""
LISTED = 8
"""Up to so many templates all permutations are listed."""
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
    return Estimate(float(found), standard_error(each))


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

    Lemma 4.6 asks that it is not 0 for the attention kernel (Eq. 9); then almost every
    cosine lift of it has a nonsingular N.
    """
    matrix = template_matrix(kernel, task)
    least = _nearest_permutation(matrix)
    found = _gap(matrix, least)
    if not isinstance(kernel, AttentionKernel):
        return Estimate(float(found), 0.0)
    each = _gap(template_replicates(kernel, task), least)
    return Estimate(float(found), standard_error(each))


def _nearest_permutation(matrix: Square) -> Int[Tensor, " template"]:
    """The permutation but the identity with the largest sum of N[i, sigma(i)]."""
    size = len(matrix)
    if size <= LISTED:
        moved = _moving(size)
        sums = matrix[torch.arange(size), moved].sum(-1)
        return moved[int(sums.argmax())]
    # The best assignment that moves i, for every i: the best that moves anything.
    found = []
    for place in range(size):
        scores = matrix.clone()
        scores[place, place] = -torch.inf
        finite = scores.nan_to_num(neginf=float(matrix.min()) - 1e6)
        columns = linear_sum_assignment(finite.numpy(), maximize=True)[1]
        found.append(torch.tensor(columns))
    sums = torch.stack([matrix[torch.arange(size), c].sum() for c in found])
    return found[int(sums.argmax())]


def _gap(matrix: Square, moved: Int[Tensor, " template"]) -> Tensor:
    own = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return own - matrix[..., torch.arange(len(moved)), moved].sum(-1)


class Regression(NamedTuple):
    """Kernel ridge regression, y^T (K + ridge I)^-1 k(x) (Eq. 4), for any labels.

    Attributes:
        gram: K of the training strings, the ridge included.
        between: k of test strings and training strings.
    """

    gram: Float[Tensor, "train train"]
    between: Float[Tensor, "test train"]

    def predictions(
        self, labels: Float[Tensor, " train *teacher"]
    ) -> Float[Tensor, " test *teacher"]:
        """What it says of the test strings; all teachers share one factorisation."""
        return self.between @ torch.linalg.solve(self.gram, labels.double())

    def nearest(self, labels: Float[Tensor, " train"]) -> Float[Tensor, " test"]:
        """The label of the training string that resembles each test string most."""
        return labels.double()[self.between.argmax(1)]


def unseen_regression(
    kernel: Kernel, train: Batch, test: Batch, task: Task, *, ridge: float
) -> Regression:
    """Regression on test strings, none of whose symbols was trained on.

    Raises:
        BadInput: Training and test strings share more than regular tokens and CLS.
    """
    cls = int(train.tokens[0, -1])
    allowed = {*range(len(task.regular)), cls}
    both = _symbols(train.tokens) & _symbols(test.tokens) - allowed
    require(not both, f"symbols {sorted(both)[:5]} are in training and test strings")
    gram = kernel(train.tokens, train.tokens)
    gram = gram + ridge * torch.eye(len(gram), dtype=gram.dtype)
    return Regression(gram, kernel(test.tokens, train.tokens))


def _symbols(tokens: Tokens) -> set[int]:
    return set(tokens.flatten().tolist())


@cache
def _moving(size: int) -> Int[Tensor, "permutation template"]:
    """Every permutation but the identity."""
    return torch.tensor(list(permutations(range(size)))[1:])


def bank_kernel(
    strings: Tokens,
    d_model: int,
    *,
    n_heads: int,
    beta: float,
    gamma: float,
    generator: Generator,
) -> Float[Tensor, "row col"]:
    """Mean over heads of <s_h^T z(x), t_h^T z(y)> for all pairs of strings.

    z = X W_E + gamma P with entries of variance 1 / d_model; s_h is the softmax of
    head h's scores of the last token, beta q^T k / sqrt(d_head), divided by
    sqrt(1 + gamma^2): the norm of the query, which the main text absorbs into beta.
    All strings end with one token, so every head has one query: W_Q^T z and W_K q are
    drawn directly, Gaussian vectors with the law of the products. Random values and
    outputs W_V W_O^T preserve inner products on average and are left out. Converges to
    `AttentionKernel` as widths and heads grow.
    """
    length = strings.shape[1]

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    tokens, which = torch.unique(strings, return_inverse=True)
    embedding = normal(len(tokens), d_model) * d_model**-0.5
    places = normal(length, d_model) * d_model**-0.5
    z = embedding[which] + gamma * places
    inner = torch.einsum("nid,mjd->nimj", z, z)
    cooled = beta / ((1 + gamma**2) * BANK_D_HEAD) ** 0.5
    query = z[0, -1].norm() * normal(n_heads, BANK_D_HEAD)
    read = query.norm(dim=1, keepdim=True) * normal(n_heads, d_model)
    pattern = (cooled * torch.einsum("hd,nid->hni", read, z)).softmax(-1)
    return torch.einsum("hni,nimj,hmj->nm", pattern, inner, pattern) / n_heads
