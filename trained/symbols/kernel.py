"""The attention kernel of an infinitely wide transformer, one value per pattern.

K_attn(x, y) depends only on which positions of the two strings hold equal tokens, so
every such equality pattern is integrated once and kept. Given the Gaussians that both
strings see (positions and common tokens) their attention is independent: each is
averaged over its private tokens first, and the averages are multiplied. All points
are scrambled Sobol points, the same ones for every pattern, so that differences
between entries are more exact than the entries; independent scramblings give the
standard error. What would falsify it: a value that changes when tokens are renamed, or
a bank of random heads that converges elsewhere.
"""

from dataclasses import dataclass, field
from functools import lru_cache

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
    cross = torch.unique(_cross_code(x, y), return_inverse=True)[1]
    code = (cross * n_kinds + kinds[: len(x), None]) * n_kinds + kinds[len(x) :]
    index = torch.unique(code, return_inverse=True)[1]
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
    code = torch.zeros(len(x), len(y), dtype=torch.int64)
    for column in y.T:
        digit = torch.full_like(code, length)
        for place in reversed(range(length)):
            digit[x[:, place, None] == column] = place
        code = code * (length + 1) + digit
    return code
