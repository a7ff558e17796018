"""Do two roles of a prompt point the same way? Cosines by layer, beside other prompts'.

Residual streams share a large common direction. So beside the plain cosine there is one
of states that are centred on their role's mean over the prompts of the shard, and
beside both the same with the target of another prompt.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from probes.alignment import centred, paired_cosine, shuffled_pair_null

from .tables import Labels, Part, long

FEWEST = 4
"""Prompts from which on a mean tells what they share."""


class States:
    """The residuals at the roles and at the last token of all prompts of a shard."""

    def __init__(self, prompts: Sequence[int], labels: Labels) -> None:
        self._prompts = list(prompts)
        self._rows = {prompt: row for row, prompt in enumerate(self._prompts)}
        self._labels = labels
        self._known = torch.zeros(len(prompts), len(labels.places), dtype=torch.bool)
        self._states: Tensor | None = None

    def add(
        self,
        prompts: Sequence[int],
        states: Float[Tensor, "layer batch place d_model"],
        known: Bool[Tensor, "batch place"],
    ) -> None:
        """Keep the states of some prompts."""
        if self._states is None:
            sizes = (states.shape[0], *self._known.shape, states.shape[-1])
            self._states = torch.zeros(sizes, dtype=states.dtype)
        rows = [self._rows[prompt] for prompt in prompts]
        self._states[:, rows] = states.cpu()
        self._known[rows] = known

    def parts(self, layers: Sequence[int], seed: int) -> list[Part]:
        """The rows of every pair of places."""
        found = []
        for source, target in combinations(range(len(self._labels.places)), 2):
            both = (self._known[:, source] & self._known[:, target]).nonzero()[:, 0]
            if len(both):
                values = self._cosines(both, source, target, seed)
                prompts = [self._prompts[row] for row in both.tolist()]
                part = long(
                    {"prompt": prompts, "layer": layers}, values, np.ones((1, 1), bool)
                )
                part["source"] = np.full(len(part["prompt"]), source)
                part["target"] = np.full(len(part["prompt"]), target)
                found.append(part)
        return found

    def _cosines(
        self, rows: Tensor, source: int, target: int, seed: int
    ) -> dict[str, NDArray[Any]]:
        assert self._states is not None
        own, other = (self._states[:, rows, place] for place in (source, target))
        plain = _beside_null(own, other, seed + self._prompts[0])
        if len(rows) < FEWEST:
            centre = (torch.full_like(plain[0], torch.nan),) * 2
        else:
            moved = centred(own), centred(other)
            centre = _beside_null(*moved, seed + self._prompts[0])
        names = ("cosine", "null_cosine", "centred", "null_centred")
        found = zip(names, (*plain, *centre), strict=True)
        return {name: values.T.numpy() for name, values in found}


def _beside_null(
    own: Float[Tensor, "layer prompt d_model"],
    other: Float[Tensor, "layer prompt d_model"],
    seed: int,
) -> tuple[Float[Tensor, "layer prompt"], Float[Tensor, "layer prompt"]]:
    """Cosines of matching pairs, and of pairs of which none matches."""
    matching = paired_cosine(own, other)
    if own.shape[1] < 2:
        return matching, torch.full_like(matching, torch.nan)
    random = torch.Generator().manual_seed(seed)
    null = shuffled_pair_null(own, other, paired_cosine, generator=random, n_shuffles=1)
    return matching, null[..., 0]
