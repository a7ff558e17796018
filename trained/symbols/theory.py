"""What the theorems say, without training a network.

Can kernel regression tell a task's templates apart on symbols it never saw? The r x r
matrix N of kernel values between templates under disjoint substitutions decides (Lemmas
4.5 and 4.6): if it is singular, every training sample looks the same to an unseen one.
How many samples are needed is judged by `samples_needed`, not by the condition number
alone: a kernel under which all distinct strings are unrelated is well conditioned and
useless. `bank_kernel` is a finite network's kernel, what the formula is checked against
(Appendix H).

Does the loss on an unseen symbol fall when training begins? The copy task `a` -> a with
attention alone and tied embeddings, in the mean-field scale (Eqs. 10, 11, 27 and 28 of
"When can transformers reason with abstract symbols?"). `transfer_rates` is the fall of
the test loss per fall of the training loss at the first instant of gradient flow on
each group of parameters. Theorem 5.1 says it is not positive for wide models; Theorem
5.2 that the scalar b makes it constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from probes.statistics import standard_error
from trained.config import require
from trained.task import Batch

from .kernel import AttentionKernel, Kernel, Tokens, TransformerKernel
from .tasks import Task

BANK_D_HEAD = 64
"""Width of the random heads; their law does not depend on it."""
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

    Lemma 4.6 asks that it is not 0 for the attention kernel; then almost every cosine
    lift of it has a nonsingular N. At most 8 templates.
    """
    found = _gaps(template_matrix(kernel, task))
    least = int(found.argmin())
    if not isinstance(kernel, AttentionKernel):
        return Estimate(float(found[least]), 0.0)
    each = _gaps(template_replicates(kernel, task))[:, least]
    return Estimate(float(found[least]), standard_error(each))


def ridge_predictions(
    kernel: Kernel, train: Batch, tokens: Tokens, *, ridge: float
) -> Float[Tensor, " example"]:
    """Kernel ridge regression, y^T (K + ridge I)^-1 k(x); Eq. 4."""
    gram = kernel(train.tokens, train.tokens)
    gram = gram + ridge * torch.eye(len(gram), dtype=gram.dtype)
    weights = torch.linalg.solve(gram, train.targets.double())
    return kernel(tokens, train.tokens) @ weights


def unseen_predictions(
    kernel: Kernel, train: Batch, test: Batch, task: Task, *, ridge: float
) -> Float[Tensor, " example"]:
    """Ridge predictions on test strings, none of whose symbols was trained on.

    Raises:
        BadInput: Training and test strings share more than regular tokens and CLS.
    """
    cls = int(train.tokens[0, -1])
    allowed = {*range(len(task.regular)), cls}
    both = _symbols(train.tokens) & _symbols(test.tokens) - allowed
    require(not both, f"symbols {sorted(both)[:5]} are in training and test strings")
    return ridge_predictions(kernel, train, test.tokens, ridge=ridge)


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


Group = Literal["W_V", "W_O", "b"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True)
class CopySizes:
    """Sizes of the copy task and of its model."""

    d_model: int
    n_tokens: int = 40
    n_seen: int = 20
    """Tokens 0, ..., n_seen - 1 are trained on; the rest is not."""
    n_heads: int = 4
    gamma: float = 0.5
    """Strength of the position embedding."""

    def __post_init__(self) -> None:
        fits = 0 < self.n_seen < self.n_tokens
        require(fits, f"n_seen={self.n_seen}: choose 1 to {self.n_tokens - 1}")
        require(self.d_model >= 1, f"d_model={self.d_model}: at least 1")


class CopyModel(nn.Module):
    """f(x) = (1/d) E (sum_h W_V,h W_O,h^T + b_h I + q_h Q)^T (e_x + gamma p).

    The softmax of a string of length 1 is 1, so keys and queries drop out. Embedding
    entries are N(0, 1); those of W_V are N(0, 1/d) and of W_O N(0, 1 / (H d)), each
    d x d, so that the sum over heads is no limit on the rank and outputs are
    O(d^-1/2). b starts at 0, and so does q, the scalar of a random orthogonal Q: what b
    would be if the identity did not matter.
    """

    rotation: Tensor

    def __init__(self, sizes: CopySizes, *, generator: Generator):
        super().__init__()
        self.sizes = sizes
        width, heads = sizes.d_model, sizes.n_heads

        def normal(*shape: int, variance: float = 1.0) -> nn.Parameter:
            return nn.Parameter(variance**0.5 * torch.randn(shape, generator=generator))

        self.W_E = normal(sizes.n_tokens, width)
        self.position = normal(width)
        self.W_V = normal(heads, width, width, variance=1 / width)
        self.W_O = normal(heads, width, width, variance=1 / (heads * width))
        self.b, self.q = (nn.Parameter(torch.zeros(heads)) for _ in range(2))
        rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
        self.register_buffer("rotation", rotation)

    def forward(
        self, tokens: Int[Tensor, " example"]
    ) -> Float[Tensor, "example d_vocab"]:
        """The logits for strings of one token each."""
        x = self.W_E[tokens] + self.sizes.gamma * self.position
        written = torch.einsum("nd,hdk,hek->ne", x, self.W_V, self.W_O)
        written = written + self.b.sum() * x + self.q.sum() * (x @ self.rotation)
        return written @ self.W_E.mT / self.sizes.d_model


def transfer_rates(model: CopyModel) -> dict[Group, float]:
    """<grad L_test, grad L_train> / |grad L_train|^2 by group of parameters.

    L_train is the mean cross-entropy over the seen tokens, L_test over the unseen
    ones. 1: both losses fall at the same rate; 0 or less: the unseen one does not fall.
    """
    seen, unseen = _both_gradients(model, GROUPS)
    return {
        group: float((seen[group] * unseen[group]).sum() / seen[group].square().sum())
        for group in GROUPS
    }


def rotated_share(model: CopyModel) -> float:
    """<grad L_test, grad L_train> of q over that of b.

    Not a rate of q's own: both of its gradients are noise, and so would be their ratio.
    """
    seen, unseen = _both_gradients(model, ("b", "q"))
    products = {name: float((seen[name] * unseen[name]).sum()) for name in seen}
    return products["q"] / products["b"]


def _both_gradients(
    model: CopyModel, names: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Those on the seen tokens and those on the unseen ones."""
    tokens, n_seen = torch.arange(model.sizes.n_tokens), model.sizes.n_seen
    return (
        gradients(model, tokens[:n_seen], names),
        gradients(model, tokens[n_seen:], names),
    )


def gradients(
    model: CopyModel, tokens: Int[Tensor, " example"], names: Sequence[str] = GROUPS
) -> dict[str, Tensor]:
    """Gradients of the mean loss on tokens that are to be copied."""
    loss = cross_entropy(model(tokens), tokens)
    found = torch.autograd.grad(loss, [getattr(model, name) for name in names])
    return dict(zip(names, found, strict=True))


def wide_limit(sizes: CopySizes) -> dict[Group, float]:
    """The rates as d grows, from the tangent kernels at initialisation.

    There the logits are 0 and the tangent kernel of W_V and of W_O is proportional to
    (1[x = x'] + gamma^2) 1[j = j'] for outputs j; that of b to 1[j = x] 1[j' = x'].
    With n of m tokens seen, the first gives
    -(gamma^2 / m) / ((1 - 1/m) / n + gamma^2 (1/n - 1/m)), the second 1.

    >>> round(wide_limit(CopySizes(d_model=8))["W_V"], 3)
    -0.114
    """
    n, m, square = sizes.n_seen, sizes.n_tokens, sizes.gamma**2
    train = (1 - 1 / m) / n + square * (1 / n - 1 / m)
    rate = -(square / m) / train
    return {"W_V": rate, "W_O": rate, "b": 1.0}
