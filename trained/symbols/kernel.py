"""Kernels of infinitely wide networks: of attention, and of a layer above it.

The attention kernel K_attn(x, y) depends only on which positions of the two strings
hold equal tokens, so every such equality pattern is integrated once and kept. Given the
Gaussians that both strings see (positions and common tokens) their attention is
independent: each is averaged over its private tokens first, and the averages are
multiplied. All points are scrambled Sobol points, the same ones for every pattern, so
that differences between entries are more exact than the entries; independent
scramblings give the standard error. What would falsify it: a value that changes when
tokens are renamed, or a bank of random heads that converges elsewhere.

`TransformerKernel` lifts it through a wide layer; `MlpKernel` lifts the inner product
of one-hot inputs, optionally with the incidence matrix beside them. Eq. 3 and
Appendices E, H and I of "When can transformers reason with abstract symbols?"
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.quasirandom import SobolEngine

from trained.config import require

Tokens = Int[Tensor, "example pos"]
Rows = Int[Tensor, "row pos"]
Columns = Int[Tensor, "col _"]
Pattern = tuple[int, ...]
"""Both strings read from the end with tokens numbered as they first occur; CLS is 0."""

Values = Float[Tensor, "*batch _ _"]
"""Broadcast against each other."""

Kernel = Callable[[Tokens, Tokens], Tensor]
"""A similarity of strings: (x, y) -> [row, col]."""

Lift = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(kxy, kxx, kyy) -> E[phi(p) phi(q)] for Gaussians p and q of that covariance."""

MAX_LENGTH = 15
"""Longest string, CLS included, whose pattern code fits 64 bits."""


@dataclass(frozen=True)
class AttentionKernel:
    """K_attn(X, Y) = E[s^T (X Y^T + gamma^2 I) t], Eq. 3 of the paper.

    s = softmax(beta u) and t = softmax(beta v), where u_i = zeta[x_i] + gamma p_i and
    v_j = zeta[y_j] + gamma p_j share one standard Gaussian per distinct token (zeta)
    and one per position (p). Strings have equal length and end with CLS, whose query
    is the one that attends.
    """

    beta: float = 4.0
    """Inverse temperature of the softmax."""
    gamma: float = 1.0
    """Strength of the position embeddings."""
    n_points: int = 512
    """Sobol points of positions and common tokens, per scrambling; a power of two."""
    n_private: int = 64
    """Sobol points of the tokens that one string has alone; a power of two."""
    n_replicates: int = 8
    """Independent scramblings; their spread is the standard error."""
    seed: int = 0
    _values: dict[Pattern, Tensor] = field(
        default_factory=dict, repr=False, compare=False
    )
    _attention: dict[Pattern, Tensor] = field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        # Exponentials of 6 standard deviations must stay finite.
        fits = 0 <= self.beta * (1 + self.gamma) <= 100
        require(fits, f"beta={self.beta}: from 0 to {100 / (1 + self.gamma):g}")

    def replicates(self, x: Rows, y: Columns) -> Float[Tensor, "replicate row col"]:
        """The kernel matrix once per scrambling."""
        table, index = self._table(x, y)
        return table[:, index]

    def __call__(self, x: Rows, y: Columns) -> Float[Tensor, "row col"]:
        """The kernel matrix: the mean over scramblings."""
        table, index = self._table(x, y)
        return table.mean(0)[index]

    def _table(self, x: Rows, y: Columns) -> tuple[Tensor, Tensor]:
        """Values [replicate, pattern] and which pattern each pair has."""
        index, rows, columns = pair_patterns(x, y)
        pairs = zip(x[rows].tolist(), y[columns].tolist(), strict=True)
        found = [self._value(canonical_pair(first, second)) for first, second in pairs]
        return torch.stack(found, dim=1), index

    def _value(self, pattern: Pattern) -> Float[Tensor, " replicate"]:
        if pattern not in self._values:
            self._values[pattern] = self._integrate(pattern)
        return self._values[pattern]

    def _integrate(self, pattern: Pattern) -> Float[Tensor, " replicate"]:
        length = len(pattern) // 2
        x, y = pattern[:length], pattern[length:]
        common = [number for number in dict.fromkeys(x) if number in y]
        equal = torch.tensor([[float(i == j) for j in y] for i in x])
        weight = equal.double() + self.gamma**2 * torch.eye(length).double()
        s, t = self._mean_attention(x, common), self._mean_attention(y, common)
        # The private points of one string must not be those of the other.
        products = [
            ((s[half] @ weight) * t[1 - half]).sum(-1).mean(-1) for half in (0, 1)
        ]
        return torch.stack(products).mean(0)

    def _mean_attention(
        self, string: Pattern, common: list[int]
    ) -> Float[Tensor, "half replicate point pos"]:
        """softmax(beta u) averaged over private tokens, by each half of the points.

        Args:
            string: The numbers of the tokens.
            common: The numbers of those that the other string has as well.
        """
        private = [number for number in dict.fromkeys(string) if number not in common]
        code = tuple(
            common.index(n) if n in common else -1 - private.index(n) for n in string
        )
        if code not in self._attention:
            self._attention[code] = self._average(code)
        return self._attention[code]

    def _average(self, code: Pattern) -> Float[Tensor, "half replicate point pos"]:
        """The averages for common tokens 0, 1, ... and private ones -1, -2, ...

        exp(beta u_i) is a factor of the position times one of the token, so only the
        sums over positions are formed for every pair of a common and a private point.
        """
        numbers, length, seed = torch.tensor(code), len(code), 3 * self.seed
        shared = self._points(2 * length, self.n_points, seed)
        places = (self.beta * self.gamma * shared[..., :length]).exp()
        tokens = (self.beta * shared[..., length:]).exp()
        common = numbers >= 0
        weights = places * torch.where(common, tokens[..., numbers.clamp(min=0)], 0)
        free, halves = places[..., ~common], []
        for half in (1, 2):
            own = self._points(length, self.n_private, seed + half)
            own = (self.beta * own[..., -1 - numbers[~common]]).exp()
            inverse = 1 / (weights.sum(-1, keepdim=True) + free @ own.mT)
            mean = weights * inverse.mean(-1, keepdim=True)
            mean[..., ~common] = free * (inverse @ own) / self.n_private
            halves.append(mean)
        return torch.stack(halves)

    def _points(self, n_dims: int, n_points: int, seed: int) -> Tensor:
        return normal_points(n_dims, n_points, self.n_replicates, seed=seed)


@lru_cache(maxsize=8)
def normal_points(
    n_dims: int, n_points: int, n_replicates: int, *, seed: int
) -> Float[Tensor, "replicate point dim"]:
    """Standard Gaussian points from independently scrambled Sobol sequences."""
    engines = [
        SobolEngine(n_dims, scramble=True, seed=n_replicates * seed + index)  # type: ignore[no-untyped-call]
        for index in range(n_replicates)
    ]
    drawn = [engine.draw(n_points, dtype=torch.float64) for engine in engines]
    # A Sobol coordinate is a multiple of 2^-30 and may be 0.
    return torch.special.ndtri(torch.stack(drawn) + 2.0**-31)


def canonical_pair(x: list[int], y: list[int]) -> Pattern:
    """The equality pattern of two strings, the same for (x, y) and (y, x).

    >>> canonical_pair([7, 7, 9], [4, 7, 9]), canonical_pair([3, 1, 5], [1, 1, 5])
    ((0, 1, 1, 0, 1, 2), (0, 1, 1, 0, 1, 2))
    """
    return min(_numbered([*x[::-1], *y[::-1]]), _numbered([*y[::-1], *x[::-1]]))


def _numbered(tokens: list[int]) -> Pattern:
    order = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    return tuple(order[token] for token in tokens)


def pair_patterns(
    x: Rows, y: Columns
) -> tuple[Int[Tensor, "row col"], Int[Tensor, " pattern"], Int[Tensor, " pattern"]]:
    """Which equality pattern each pair has, and a row and a column with each.

    A pattern is what x equals within itself, what y equals within itself, and where
    each token of y first occurs in x. (x, y) and (y, x) count as two.
    """
    length = x.shape[1]
    require(y.shape[1] == length, f"strings of {length} and {y.shape[1]} tokens")
    require(length <= MAX_LENGTH, f"strings of {length} tokens: at most {MAX_LENGTH}")
    own = torch.cat([first_occurrence(x), first_occurrence(y)])
    kinds = torch.unique(own, dim=0, return_inverse=True)[1]
    n_kinds = int(kinds.max()) + 1
    cross = _ranks(_cross_code(x, y))
    index = _ranks(
        (cross * n_kinds + kinds[: len(x), None]) * n_kinds + kinds[len(x) :]
    )
    flat = index.flatten()
    example = flat.new_zeros(int(flat.max()) + 1)
    example[flat] = torch.arange(len(flat))
    return index, example // len(y), example % len(y)


def first_occurrence(tokens: Tokens) -> Tokens:
    """For every position the first one that holds the same token.

    >>> first_occurrence(torch.tensor([[5, 3, 5, 9]])).tolist()
    [[0, 1, 0, 3]]
    """
    equal = tokens[:, :, None] == tokens[:, None, :]
    return equal.int().argmax(-1)


def _cross_code(x: Rows, y: Columns) -> Int[Tensor, "row col"]:
    """Digits in base length + 1: where each token of y first occurs in x, if at all."""
    length = x.shape[1]
    tokens, columns = torch.unique(y, return_inverse=True)
    # Looked up once for every token of y instead of compared once for every pair.
    first = torch.full((len(x), len(tokens)), length)
    for place in reversed(range(length)):
        row, token = (x[:, place, None] == tokens).nonzero(as_tuple=True)
        first[row, token] = place
    code = torch.zeros(len(x), len(y), dtype=torch.int64)
    for column in columns.T:
        code = code * (length + 1) + first[:, column]
    return code


def _ranks(codes: Int[Tensor, "row col"]) -> Int[Tensor, "row col"]:
    """The place of each code among the different ones.

    >>> _ranks(torch.tensor([[7, 0], [3, 7]])).tolist()
    [[2, 0], [1, 2]]
    """
    size = int(codes.max()) + 1
    if size > codes.numel():
        return torch.unique(codes, return_inverse=True)[1]
    # Without sorting: there are few codes and many pairs.
    occurs = torch.zeros(size, dtype=torch.int64)
    occurs[codes.flatten()] = 1
    return (occurs.cumsum(0) - 1)[codes]


@dataclass(frozen=True)
class CosineLift:
    """phi(t) = cos(frequency t + shift), the activation of the proof.

    1/2 exp(-b1^2 (kxx + kyy) / 2) (exp(b1^2 kxy) + cos(2 b2) exp(-b1^2 kxy)),
    with b1 the frequency and b2 the shift.
    """

    frequency: float = 1.0
    shift: float = 0.3

    def __call__(self, kxy: Values, kxx: Values, kyy: Values) -> Values:
        """The lifted kernel."""
        square = self.frequency**2
        damping = torch.exp(-square * (kxx + kyy) / 2)
        other = math.cos(2 * self.shift) * torch.exp(-square * kxy)
        return damping * (torch.exp(square * kxy) + other) / 2


@dataclass(frozen=True)
class ReluLift:
    """phi(t) = max(t, 0), the arc-cosine kernel of Cho and Saul 2009.

    sqrt(kxx kyy) (sin theta + (pi - theta) cos theta) / (2 pi),
    cos theta = kxy / sqrt(kxx kyy).
    """

    def __call__(self, kxy: Values, kxx: Values, kyy: Values) -> Values:
        """The lifted kernel."""
        size = (kxx * kyy).sqrt()
        cosine = (kxy / size).clamp(-1, 1)
        angle = cosine.acos()
        return size * (angle.sin() + (math.pi - angle) * cosine) / (2 * math.pi)


@dataclass(frozen=True)
class TransformerKernel:
    """K_trans: an infinitely wide layer above an infinite bank of random heads."""

    attention: AttentionKernel = field(default_factory=AttentionKernel)
    lift: Lift = field(default_factory=CosineLift)

    def __call__(self, x: Rows, y: Columns) -> Float[Tensor, "row col"]:
        """The matrix of similarities, from the mean attention kernel."""
        own = [_own(self.attention, strings) for strings in (x, y)]
        return self.lift(self.attention(x, y), own[0][:, None], own[1][None])

    def replicates(self, x: Rows, y: Columns) -> Float[Tensor, "replicate row col"]:
        """The matrix once per scrambling of the integration points."""
        own = [_own(self.attention.replicates, strings) for strings in (x, y)]
        between = self.attention.replicates(x, y)
        return self.lift(between, own[0][..., None], own[1][:, None])


@dataclass(frozen=True)
class MlpKernel:
    """An inner-product kernel: a wide layer above concatenated one-hot tokens.

    <x, y> is the number of positions with equal tokens. `incidence` adds the inner
    product of X X^T and Y Y^T, which is what an MLP sees that is also given the
    flattened incidence matrix.
    """

    extra: Literal["none", "incidence"] = "none"
    lift: Lift = field(default_factory=ReluLift)

    def __call__(self, x: Rows, y: Columns) -> Float[Tensor, "row col"]:
        """The matrix of similarities."""
        own = [_own(self._inner, strings) for strings in (x, y)]
        return self.lift(self._inner(x, y), own[0][:, None], own[1][None])

    def _inner(self, x: Rows, y: Columns) -> Float[Tensor, "row col"]:
        inner = (x[:, None] == y[None]).double().sum(-1)
        if self.extra == "none":
            return inner
        return inner + _incidence(x) @ _incidence(y).mT


def _incidence(tokens: Tokens) -> Float[Tensor, "example pair"]:
    """X X^T of every string, flattened."""
    return (tokens[:, :, None] == tokens[:, None]).double().flatten(1)


def _own(kernel: Kernel, strings: Tokens) -> Float[Tensor, "*replicate example"]:
    """K(x, x), once per equality pattern: tokens are interchangeable."""
    patterns, which = torch.unique(
        first_occurrence(strings), dim=0, return_inverse=True
    )
    values = [kernel(string[None], string[None])[..., 0, 0] for string in patterns]
    return torch.stack(values, dim=-1)[..., which]


@dataclass(frozen=True)
class ForeignKernel:
    """That of an MLP given the incidence matrix of a fresh string of the task.

    A control: the mean over the templates that both fresh strings may have.
    """

    strings: Tokens
    """One string for each template."""
    lift: Lift = field(default_factory=ReluLift)

    def __call__(self, x: Rows, y: Columns) -> Float[Tensor, "row col"]:
        """The matrix of similarities."""
        inner = (x[:, None] == y[None]).double().sum(-1)
        given = _incidence(self.strings)
        size = len(given)
        own = given.square().sum(1) + x.shape[1]
        own = own.expand(*inner.shape, size)
        values = self.lift(
            inner[..., None, None] + given @ given.mT,
            own[..., :, None],
            own[..., None, :],
        )
        return values.mean((-2, -1))
