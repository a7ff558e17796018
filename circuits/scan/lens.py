"""The answer by layer: its log-probability and rank, without the vocabulary's logits.

Every layer's residual at the answer goes through the final norm and the unembedding.
The vocabulary is passed in tiles that stay in the cache, all layers at a time: of a
tile, only its log-sum-exp and the number of larger logits are kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.backends.anatomy import Readout
from circuits.models.language_model import LanguageModel

from .packing import Teaching
from .passes import at_least_single
from .tables import Part, long

TILE = {"cpu": 2**21, "other": 2**26}
"""Logits that are held at a time: 8 MB stay in the cache of a CPU."""

STEP = 512
"""Tokens of a tile are a multiple of this: other products are a third slower."""


class Lens(NamedTuple):
    """Quantities by layer and read."""

    log_prob: Float[Tensor, "layer read"]
    rank: Float[Tensor, "layer read"]
    null_log_prob: Float[Tensor, "layer read"]


@torch.no_grad()
def answer_lens(
    readout: Readout,
    residual: Float[Tensor, "layer read d_model"],
    targets: Int[Tensor, " read"],
    nulls: Int[Tensor, " read"],
) -> Lens:
    """The targets' log-probabilities and ranks by layer, as `inspect` shows them.

    log p = x_t - log sum_v exp x_v with x = readout(h); rank = 1 + #{larger} +
    #{equal, of other tokens} / 2.

    Args:
        readout: from residuals to logits.
        residual: where each read is taken, by layer.
        targets: the token of each read.
        nulls: another token, whose log-probability is taken too; -1 for none.
    """
    both = torch.stack([targets, nulls.clamp(min=0)], -1)
    # The reads go first: `target_logits` takes tokens by its first axis.
    own, null = at_least_single(
        readout.target_logits(residual.transpose(0, 1), both)
    ).permute(2, 1, 0)
    others = _Others(own)
    for first, logits in _tiles(readout, residual):
        others.add(logits, targets - first)
    log_z = torch.logaddexp(others.log_sum, own)
    null_log_prob = torch.where(nulls < 0, torch.nan, null - log_z)
    rank = torch.where(own.isnan(), torch.nan, 1 + others.larger / 2)
    return Lens(own - log_z, rank, null_log_prob)


class _Others:
    """Running sums over the tokens that are not the target."""

    def __init__(self, own: Float[Tensor, "layer read"]) -> None:
        self._own = own[..., None]
        self._top = torch.full_like(self._own, -torch.inf)
        self._sum = torch.zeros_like(self._own)
        self.larger = torch.zeros_like(own)
        """Twice the larger logits, and once the equal ones."""

    def add(
        self, logits: Float[Tensor, "layer read tile"], places: Int[Tensor, " read"]
    ) -> None:
        inside = ((places >= 0) & (places < logits.shape[-1])).nonzero()[:, 0]
        logits[:, inside, places[inside]] = -torch.inf
        self.larger += (logits > self._own).sum(-1, dtype=torch.int32)
        self.larger += (logits >= self._own).sum(-1, dtype=torch.int32)
        top = torch.maximum(self._top, logits.amax(-1, keepdim=True))
        # Until there is something, -inf - -inf would not be a number.
        fixed = top.clamp(min=torch.finfo(top.dtype).min)
        added = logits.sub_(fixed).exp_().sum(-1, keepdim=True)
        self._sum = self._sum * (self._top - fixed).exp() + added
        self._top = top

    @property
    def log_sum(self) -> Float[Tensor, "layer read"]:
        return (self._top + self._sum.log())[..., 0]


def _tiles(
    readout: Readout, residual: Float[Tensor, "layer read d_model"]
) -> Iterator[tuple[int, Tensor]]:
    """The first token of every tile of the vocabulary, and the logits of its tokens."""
    W_U, bias = readout.unembedding, readout.bias
    normed = readout.final_norm(residual.to(W_U.dtype))
    places = residual.shape[0] * residual.shape[1]
    kind = "cpu" if residual.device.type == "cpu" else "other"
    width = max(1, TILE[kind] // places // STEP) * STEP
    for first in range(0, W_U.shape[1], width):
        part = slice(first, first + width)
        own = None if bias is None else bias[part]
        tile = replace(readout, final_norm=_as_is, unembedding=W_U[:, part], bias=own)
        yield first, at_least_single(tile.logits(normed))


def _as_is(normed: Tensor) -> Tensor:
    return normed


def lens_part(
    model: LanguageModel,
    taught: Sequence[Teaching],
    residual: Float[Tensor, "layer batch place d_model"],
    layers: Sequence[int],
    others: Mapping[int, int],
) -> Part | None:
    """The rows of a batch; None if no answer is read off it.

    Args:
        model: gives the readout.
        taught: what the model read.
        residual: at the last token of each prompt and at those of its answer.
        layers: their numbers.
        others: the token of the null, by prompt.
    """
    reads = [(row, read) for row, t in enumerate(taught) for read in t.reads]
    if not reads:
        return None
    rows = torch.tensor([row for row, _ in reads], device=residual.device)
    places = torch.tensor([read.token for _, read in reads], device=residual.device)
    targets = torch.tensor([read.target for _, read in reads], device=residual.device)
    prompts = [taught[row].item.index for row, _ in reads]
    nulls = [
        others.get(prompt, -1) if (read.answer, read.token) == (0, 0) else -1
        for prompt, (_, read) in zip(prompts, reads, strict=True)
    ]
    null = torch.tensor(nulls, device=residual.device)
    found = answer_lens(model.readout, residual[:, rows, places], targets, null)
    values = {name: v.T.cpu().numpy() for name, v in found._asdict().items()}
    axes = {"read": range(len(reads)), "layer": layers}
    part = long(axes, values, np.ones((1, 1), bool))
    own = part.pop("read")
    part["prompt"] = np.asarray(prompts)[own]
    part["answer"] = np.asarray([read.answer for _, read in reads])[own]
    part["token"] = np.asarray([read.token for _, read in reads])[own]
    return part
