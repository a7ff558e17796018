"""The lens without the vocabulary's logits: answers and top tokens by layer.

Every layer's residual at a read goes through the final norm and the unembedding. The
vocabulary is passed in tiles that stay in the cache, many reads at a time: of a tile,
only its log-sum-exp, the number of larger logits or the largest one are kept.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.backends.anatomy import Readout

TILE = {"cpu": 2**21, "other": 2**26}
"""Logits that are held at a time: 8 MB stay in the cache of a CPU."""

STEP = 512
"""Tokens of a tile are a multiple of this: other products are a third slower."""

Residual = Float[Tensor, "layer place d_model"]


class Lens(NamedTuple):
    """Quantities by layer and read."""

    log_prob: Float[Tensor, "layer read"]
    rank: Float[Tensor, "layer read"]
    null_log_prob: Float[Tensor, "layer read"]


class Tops(NamedTuple):
    """The most likely token by layer and read."""

    token: Int[Tensor, "layer read"]
    log_prob: Float[Tensor, "layer read"]


@torch.no_grad()
def answer_lens(
    readout: Readout,
    residual: Residual,
    targets: Int[Tensor, " read"],
    nulls: Int[Tensor, " read"] | None = None,
    at: Int[Tensor, " read"] | None = None,
) -> Lens:
    """The targets' log-probabilities and ranks by layer; `scan` and `inspect` alike.

    log p = x_t - log sum_v exp x_v with x = readout(h); rank = 1 + #{larger} +
    #{equal, of other tokens} / 2.

    Logits have the round-off of their sums, which depends on what is computed beside
    them. So log-probabilities of one read in two batches agree to round-off, and ranks
    up to the tokens whose logits lie within twice that round-off of the target's: in
    the middle of a large vocabulary that may be several.

    Args:
        readout: from residuals to logits.
        residual: where each read is taken, by layer.
        targets: the token of each read.
        nulls: another token, whose log-probability is taken too; -1, or None, for none.
        at: which of the residuals each read is taken at, if reads share them: a shared
            one is unembedded once.
    """
    if nulls is None:
        nulls = torch.full_like(targets, -1)
    both = torch.stack([targets, nulls.clamp(min=0)], -1)
    # The reads go first: `target_logits` takes tokens by its first axis.
    reads = residual if at is None else residual[:, at]
    own, null = readout.target_logits(reads.transpose(0, 1), both).permute(2, 1, 0)
    others = _Others(own)
    for first, logits in _tiles(readout, residual):
        others.add(logits if at is None else logits[:, at], targets - first)
    log_z = torch.logaddexp(others.sums.log, own)
    null_log_prob = torch.where(nulls < 0, torch.nan, null - log_z)
    rank = torch.where(own.isnan(), torch.nan, 1 + others.larger / 2)
    return Lens(own - log_z, rank, null_log_prob)


@torch.no_grad()
def top_tokens(readout: Readout, residual: Residual) -> Tops:
    """The token with the largest logit by layer and read, and its log-probability.

    Reads are taken some at a time, so that memory does not grow with their number.
    """
    parts = [_tops(readout, some) for some in torch.split(residual, STEP, 1)]
    return Tops(*(torch.cat(own, 1) for own in zip(*parts, strict=True)))


def _tops(readout: Readout, residual: Residual) -> Tops:
    wide = torch.promote_types(readout.unembedding.dtype, torch.float32)
    sums = _Sums(torch.zeros_like(residual[..., 0], dtype=wide))
    token = torch.zeros_like(residual[..., 0], dtype=torch.long)
    for first, logits in _tiles(readout, residual):
        best = logits.max(-1)
        larger = best.values > sums.top[..., 0]
        token = torch.where(larger, best.indices + first, token)
        sums.add(logits)
    return Tops(token, sums.top[..., 0] - sums.log)


class _Sums:
    """A running log-sum-exp over the tiles of the vocabulary."""

    def __init__(self, like: Float[Tensor, "layer read"]) -> None:
        self.top = torch.full_like(like, -torch.inf)[..., None]
        self._sum = torch.zeros_like(self.top)

    def add(self, logits: Float[Tensor, "layer read tile"]) -> None:
        """Count a tile, which is used up."""
        top = torch.maximum(self.top, logits.amax(-1, keepdim=True))
        # Until there is something, -inf - -inf would not be a number.
        fixed = top.clamp(min=torch.finfo(top.dtype).min)
        added = logits.sub_(fixed).exp_().sum(-1, keepdim=True)
        self._sum = self._sum * (self.top - fixed).exp() + added
        self.top = top

    @property
    def log(self) -> Float[Tensor, "layer read"]:
        """Log sum exp of all tiles so far."""
        return (self.top + self._sum.log())[..., 0]


class _Others:
    """Running sums over the tokens that are not the target."""

    def __init__(self, own: Float[Tensor, "layer read"]) -> None:
        self._own = own[..., None]
        self.sums = _Sums(own)
        self.larger = torch.zeros_like(own)
        """Twice the larger logits, and once the equal ones."""

    def add(
        self, logits: Float[Tensor, "layer read tile"], places: Int[Tensor, " read"]
    ) -> None:
        inside = ((places >= 0) & (places < logits.shape[-1])).nonzero()[:, 0]
        logits[:, inside, places[inside]] = -torch.inf
        # Ones and zeros in the logits' own type: four times as fast as truth values.
        found = torch.empty_like(logits)
        self.larger += torch.gt(logits, self._own, out=found).sum(-1)
        self.larger += torch.ge(logits, self._own, out=found).sum(-1)
        self.sums.add(logits)


def _tiles(readout: Readout, residual: Residual) -> Iterator[tuple[int, Tensor]]:
    """The first token of every tile of the vocabulary, and the logits of its tokens."""
    normed = readout.normed(residual)
    places = residual.shape[0] * residual.shape[1]
    kind = "cpu" if residual.device.type == "cpu" else "other"
    width = max(1, TILE[kind] // places // STEP) * STEP
    for first in range(0, readout.unembedding.shape[1], width):
        yield first, readout.of_normed(normed, slice(first, first + width))
