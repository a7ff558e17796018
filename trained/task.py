"""What a task hands to a model: tokens, targets and roles.

A generator of a study has the form `(config, generator) -> Batch` or a mapping of
named batches. Roles are named positions (which keys are the subjects of the
examples, which is the query): they let one signal serve every study.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from .errors import unknown


class Batch(NamedTuple):
    """Prompts with the answer expected at their last position.

    A NamedTuple so that `torch.func.vmap` sees through it: stacking the batches of
    several seeds gives a batch whose tensors have a leading seed axis.
    """

    tokens: Int[Tensor, "*seed batch pos"]
    targets: Int[Tensor, "*seed batch"]
    roles: Mapping[str, Int[Tensor, "*seed batch role_pos"]] = {}
    """Positions by role name; a role may name several positions."""

    def role(self, name: str) -> Int[Tensor, "*seed batch role_pos"]:
        """The positions of a role."""
        if name not in self.roles:
            raise unknown("role", name, sorted(self.roles))
        return self.roles[name]

    def chunks(self, size: int) -> "Iterator[Batch]":
        """The prompts in batches of at most `size`, in order."""
        for start in range(0, len(self.targets), size):
            part = slice(start, start + size)
            roles = {name: places[part] for name, places in self.roles.items()}
            yield Batch(self.tokens[part], self.targets[part], roles)


def positions(columns: list[int], like: Int[Tensor, "batch pos"]) -> Tensor:
    """A role that sits at the same columns in every prompt of a batch."""
    row = torch.tensor(columns, device=like.device)
    return row.expand(like.shape[0], len(columns)).contiguous()
