"""What do a model's weights carry? Change them in a copy and see what is lost."""

import copy
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

import torch
from torch import Tensor, nn

from trained.errors import BadInput, NothingChanged, unknown

Module = TypeVar("Module", bound=nn.Module)

WeightEdit = Callable[[Tensor], Tensor]
"""a weight -> what takes its place, of the same shape."""


@torch.no_grad()
def edited(model: Module, edits: Mapping[str, WeightEdit]) -> Module:
    """A copy of a model whose parameters or buffers were changed; the model is not.

    Several edits follow each other in the given order. Tied weights are one: they
    change together.

    Args:
        model: the model; of a language model, its `module`, to be wrapped again.
        edits: by name, or by a pattern of names such as "blocks.*.attn.W_Q".

    Raises:
        BadInput: if a name matches nothing, or an edit changes a shape or no value.
    """
    changed = copy.deepcopy(model)
    for pattern, edit in edits.items():
        weights = _matching(changed, pattern)
        moved = [_change(name, weight, edit) for name, weight in weights.items()]
        if not any(moved):
            names = ", ".join(weights)
            raise NothingChanged(f"the edit of {pattern} left {names} unchanged")
    return changed


def _matching(model: nn.Module, pattern: str) -> dict[str, Tensor]:
    """The weights of the names that match, each weight once."""
    named: dict[str, Tensor] = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    found = {
        name: weight for name, weight in named.items() if fnmatchcase(name, pattern)
    }
    if not found:
        raise unknown("weight", pattern, named)
    first = {id(weight): name for name, weight in reversed(found.items())}
    return {name: found[name] for name in sorted(first.values())}


def _change(name: str, weight: Tensor, edit: WeightEdit) -> bool:
    """Change a weight where it is; whether that made a difference."""
    value = edit(weight.detach().clone())
    if value.shape != weight.shape:
        raise BadInput(
            f"the edit of {name} changed the shape from {tuple(weight.shape)} to "
            f"{tuple(value.shape)}"
        )
    before = weight.detach().clone()
    weight.copy_(value)
    return not torch.equal(weight, before)
