"""Several models of one shape as one batched program.

Parameters and buffers are stacked along a leading seed axis and the model is called
under `torch.func.vmap`, so a step of ten tiny models costs about as much as a step of
one. A quantity sees an ordinary model; it does not know that it is batched.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from .arm import Data, Quantities, Quantity


class _Applied(nn.Module):
    """Lets `functional_call` swap the parameters of a model that a function uses."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, quantity: Callable[[Any, Data], Any], data: Data) -> Any:
        return quantity(self.model, data)


class Ensemble:
    """Models of one shape, stacked along a seed axis."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.size = len(models)
        self._applied = _Applied(copy.deepcopy(models[0]))
        self.parameters = _stacked([dict(m.named_parameters()) for m in models])
        self.buffers = _stacked([dict(m.named_buffers()) for m in models])
        # The copy's own values are never read: its memory need not be kept.
        for name, parameter in self._applied.model.named_parameters():
            parameter.data = self.parameters[name][0]
        persistent = models[0].state_dict().keys()
        self._stored_buffers = [name for name in self.buffers if name in persistent]

    def values(self, quantity: Quantity, data: Data) -> Float[Tensor, " seed"]:
        """The quantity of every model on its own slice of the data."""
        return self._values(quantity, data)

    def named_values(
        self, quantities: Quantities, data: Data
    ) -> dict[str, Float[Tensor, " seed"]]:
        """The same for several quantities at once, by name."""
        return self._values(quantities, data)

    def _values(self, quantity: Callable[[Any, Data], Any], data: Data) -> Any:
        state = {**self.parameters, **self.buffers}
        if self.size == 1:
            # A plain dictionary: walking it as a tree costs more than a small step. And
            # squeezed: the gradient of an index is a copy into zeros.
            only = {name: tensor.squeeze(0) for name, tensor in state.items()}
            alone = self._one(quantity, only, _slice(data, 0))
            return pytree.tree_map(lambda leaf: leaf[None], alone)
        return vmap(lambda s, d: self._one(quantity, s, d))(state, data)

    def _one(
        self,
        quantity: Callable[[Any, Data], Any],
        state: Mapping[str, Tensor],
        data: Data,
    ) -> Any:
        named = {f"model.{name}": tensor for name, tensor in state.items()}
        return functional_call(self._applied, named, (quantity, data))

    def state(self) -> dict[str, Tensor]:
        """Copies of all stored tensors, each with a leading seed axis."""
        stored = {name: self.buffers[name] for name in self._stored_buffers}
        return {
            name: tensor.detach().clone()
            for name, tensor in {**self.parameters, **stored}.items()
        }

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` gave."""
        for name, tensor in state.items():
            home = self.parameters if name in self.parameters else self.buffers
            home[name].copy_(tensor)


def stack(trees: Sequence[Data]) -> Data:
    """Equal trees of tensors stacked along a new leading seed axis."""
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *trees)


def move(tree: Data, device: torch.device | str) -> Data:
    """The tree with every tensor on the device; pinned memory is not waited for."""
    return pytree.tree_map(lambda leaf: leaf.to(device, non_blocking=True), tree)


def pinned(tree: Data) -> Data:
    """The tree in memory that a CUDA device reads by itself."""
    return pytree.tree_map(lambda leaf: leaf.pin_memory(), tree)


def rows(tree: Data, index: Tensor) -> Data:
    """For every seed the rows that its line of `index` names."""
    seeds = torch.arange(index.shape[0], device=index.device)[:, None]
    return pytree.tree_map(lambda leaf: leaf[seeds, index], tree)


def leaves(tree: Data) -> list[Tensor]:
    """The tensors of the tree in a fixed order."""
    return pytree.tree_leaves(tree)


def _slice(tree: Data, index: int) -> Data:
    return pytree.tree_map(lambda leaf: leaf[index], tree)


def _stacked(named: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {
        name: torch.stack([tensors[name].detach() for tensors in named])
        for name in named[0]
    }
