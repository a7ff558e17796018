"""What a task hands to a model: tokens, targets, a mask and roles.

One class serves the small models and the prompts of a language model. Roles are named
positions (which keys are the subjects of the examples, which is the query): they let
one signal serve every study.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils import _pytree as pytree

from .errors import BadInput, unknown


@dataclass(frozen=True)
class Batch:
    """Prompts with the answer expected after their last token.

    `torch.func.vmap` sees through it: stacking the batches of several seeds gives a
    batch whose tensors have a leading seed axis.

    Attributes:
        tokens: token ids; the values at padded places mean nothing.
        targets: the token expected after each prompt's last one, or a number.
        mask: True at real tokens, False at padding; None where nothing is padded.
        roles: positions by role name, counted in the padded batch; a role may name
            several positions.
    """

    tokens: Int[Tensor, "*seed batch pos"]
    targets: Int[Tensor, "*seed batch"] | Float[Tensor, "*seed batch"]
    mask: Bool[Tensor, "*seed batch pos"] | None = None
    roles: Mapping[str, Int[Tensor, "*seed batch role_pos"]] = field(
        default_factory=dict
    )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def real(self) -> Bool[Tensor, "*seed batch pos"]:
        """True at what is not padding."""
        if self.mask is None:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        return self.mask

    @property
    def last(self) -> Int[Tensor, "*seed batch"]:
        """The position of each prompt's last token."""
        places = torch.arange(self.tokens.shape[-1], device=self.tokens.device)
        return places.where(self.real, -1).amax(-1)

    def role(self, name: str) -> Int[Tensor, "*seed batch role_pos"]:
        """The positions of a role; `last` is each prompt's last token."""
        if name in self.roles:
            return self.roles[name]
        if name == "last":
            return self.last[..., None]
        raise unknown("role", name, ["last", *sorted(self.roles)])

    def rows(self, index: Int[Tensor, " row"] | slice) -> "Batch":
        """Some of the prompts, in the given order, with repetition."""
        return Batch(
            self.tokens[index],
            self.targets[index],
            None if self.mask is None else self.mask[index],
            {name: places[index] for name, places in self.roles.items()},
        )

    def chunks(self, size: int) -> "Iterator[Batch]":
        """The prompts in batches of at most `size`, in order."""
        for start in range(0, len(self), size):
            yield self.rows(slice(start, start + size))

    def with_targets(
        self, targets: Int[Tensor, " batch"] | Float[Tensor, " batch"]
    ) -> "Batch":
        """The same prompts with other expected answers."""
        if len(targets) != len(self):
            raise BadInput(f"{len(targets)} targets for {len(self)} prompts")
        return replace(self, targets=targets)

    def to(self, device: torch.device | str) -> "Batch":
        """The same prompts on a device."""
        moved = pytree.tree_map(lambda leaf: leaf.to(device), self)
        assert isinstance(moved, Batch)
        return moved


def positions(columns: list[int], like: Int[Tensor, "batch pos"]) -> Tensor:
    """A role that sits at the same columns in every prompt of a batch."""
    row = torch.tensor(columns, device=like.device)
    return row.expand(like.shape[0], len(columns)).contiguous()


def shuffle_targets(batch: Batch, generator: torch.Generator) -> Batch:
    """The same prompts with their answers permuted: nothing is left to learn."""
    order = torch.randperm(len(batch), generator=generator)
    return batch.with_targets(batch.targets[order.to(batch.targets.device)])


def _flatten(batch: Batch) -> tuple[list[Any], tuple[str, ...]]:
    """The tensors of a batch; an absent mask is no leaf."""
    present = {"tokens": batch.tokens, "targets": batch.targets, "mask": batch.mask}
    named = {name: leaf for name, leaf in present.items() if leaf is not None}
    return [*named.values(), dict(batch.roles)], tuple(named)


def _unflatten(leaves: Any, names: tuple[str, ...]) -> Batch:
    # Past the constructor: torch also builds batches of axes and shapes.
    *named, roles = leaves
    fields = {"mask": None, **dict(zip(names, named, strict=True)), "roles": roles}
    batch = object.__new__(Batch)
    for name, value in fields.items():
        object.__setattr__(batch, name, value)
    return batch


pytree.register_pytree_node(Batch, _flatten, _unflatten)
