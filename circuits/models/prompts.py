"""Tokenised prompts of different lengths as one padded batch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from trained.errors import unknown


@dataclass(frozen=True)
class Prompts:
    """Prompts for a language model; what `Batch` is for the small models.

    Attributes:
        tokens: token ids; the values at padded places mean nothing.
        mask: True at real tokens, False at padding.
        targets: the token expected after each prompt's last one.
        roles: positions by role name, counted in the padded batch.
    """

    tokens: Int[Tensor, "batch pos"]
    mask: Bool[Tensor, "batch pos"]
    targets: Int[Tensor, " batch"]
    roles: Mapping[str, Int[Tensor, "batch role_pos"]] = field(default_factory=dict)

    @property
    def last(self) -> Int[Tensor, " batch"]:
        """The position of each prompt's last token."""
        places = torch.arange(self.mask.shape[1], device=self.mask.device)
        return places.where(self.mask, -1).amax(1)

    def role(self, name: str) -> Int[Tensor, "batch role_pos"]:
        """The positions of a role."""
        if name not in self.roles:
            raise unknown("role", name, sorted(self.roles))
        return self.roles[name]

    def chunks(self, size: int) -> "Iterator[Prompts]":
        """The prompts in batches of at most `size`, in order."""
        for start in range(0, len(self.targets), size):
            part = slice(start, start + size)
            roles = {name: places[part] for name, places in self.roles.items()}
            yield Prompts(self.tokens[part], self.mask[part], self.targets[part], roles)
