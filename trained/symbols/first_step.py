"""What Theorems 5.1 and 5.2 say of copying, at the first instant of training.

Does the loss on an unseen symbol fall when training begins? The copy task `a` -> a with
attention alone and tied embeddings, in the mean-field scale (Eqs. 10, 11, 27 and 28 of
"When can transformers reason with abstract symbols?"). A transfer rate is the fall of
the test loss per fall of the training loss at the first instant of gradient flow on
each group of parameters. Theorem 5.1 says it is not positive for wide models, whatever
the rates of the groups; Theorem 5.2 that the scalar b makes it constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from trained.config import require

Group = Literal["W_V", "W_O", "W_E", "position"]
"""Keys and queries have no gradient at all: the softmax of one token is 1."""
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


class FirstInstant:
    """How the losses of a model begin to fall; each gradient is taken once."""

    def __init__(self, model: CopyModel) -> None:
        tokens, n_seen = torch.arange(model.sizes.n_tokens), model.sizes.n_seen
        self._train = gradients(model, tokens[:n_seen])
        self._test = gradients(model, tokens[n_seen:])
        self._half = gradients(model, tokens[: max(1, n_seen // 2)])

    def transfer_rates(
        self, names: Sequence[str] = GROUPS, *, among_seen: bool = False
    ) -> dict[str, float]:
        """<grad L_test, grad L_train> / |grad L_train|^2 by group of parameters.

        L_train is the mean cross-entropy over the seen tokens, L_test over the unseen
        ones. 1: both losses fall at the same rate; 0 or less: the unseen one does not
        fall. A position embedding of strength 0 has no gradient, and no rate.

        Args:
            names: which groups.
            among_seen: let the test tokens be the first half of the seen ones instead.
        """
        test = self._half if among_seen else self._test
        sizes = {name: float(self._train[name].square().sum()) for name in names}
        return {
            name: float((self._train[name] * test[name]).sum()) / size
            for name, size in sizes.items()
            if size > 0
        }

    def rotated_share(self) -> float:
        """<grad L_test, grad L_train> of q over that of b.

        Not a rate of q's own: both of its gradients are noise, and so would be their
        ratio.
        """
        q, b = (float((self._train[n] * self._test[n]).sum()) for n in ("q", "b"))
        return q / b


def gradients(model: CopyModel, tokens: Int[Tensor, " example"]) -> dict[str, Tensor]:
    """Gradients of the mean loss on tokens that are to be copied, by parameter."""
    loss = cross_entropy(model(tokens), tokens)
    names = dict(model.named_parameters())
    found = torch.autograd.grad(loss, list(names.values()))
    return dict(zip(names, found, strict=True))


def limit(
    widths: Sequence[int], rates: Float[Tensor, "*draw width"], terms: int = 3
) -> Float[Tensor, " *draw"]:
    """r_inf of the least-squares fit r(d) = r_inf + c / d + e / d^2.

    With two terms alone a rate such as n / (d + n), which has no limit above 0, is
    given one: the fit is then biased where d is only a few times n.

    >>> widths = (64, 128, 256, 512)
    >>> limit(widths, torch.tensor([0.5 + 8 / d for d in widths]))
    tensor(0.5000)
    """
    inverse = widths[0] / torch.tensor(widths, dtype=rates.dtype)
    design = torch.stack([inverse**power for power in range(terms)], dim=1)
    return (rates @ torch.linalg.pinv(design).mT)[..., 0]


def wide_limit(sizes: CopySizes) -> dict[str, float]:
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
