"""Several models of one shape as one batched program.

Parameters and buffers are stacked along a leading seed axis and the model is called
under `torch.func.vmap`, so a step of ten tiny models costs about as much as a step of
one. A quantity sees an ordinary model; it does not know that it is batched.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import vmap
from torch.utils import _pytree as pytree

from .arm import Data, Quantities, Quantity


class _Worn:
    """A model that is called with other tensors in the place of its own.

    As `torch.func.functional_call` does, without asking the model at every call where
    its tensors are, which is a good part of a small model's step.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        names = {id(tensor): name for name, tensor in _tensors(model)}
        stores: list[dict[str, Any]] = [
            store
            for part in model.modules()
            for store in (part._parameters, part._buffers)
        ]
        # A tied tensor has one name and several places.
        self._places = [
            (store, leaf, names[id(own)])
            for store in stores
            for leaf, own in store.items()
            if own is not None
        ]
        self._own = [store[leaf] for store, leaf, _ in self._places]

    def __call__(
        self,
        quantity: Callable[[Any, Data], Any],
        state: Mapping[str, Tensor],
        data: Data,
    ) -> Any:
        """A quantity of the model as it is with the tensors of `state`."""
        try:
            for store, leaf, name in self._places:
                store[leaf] = state[name]
            return quantity(self._model, data)
        finally:
            for (store, leaf, _), own in zip(self._places, self._own, strict=True):
                store[leaf] = own


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


class Ensemble:
    """Models of one shape, stacked along a seed axis."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.size = len(models)
        model = copy.deepcopy(models[0])
        self.parameters = _stacked([dict(m.named_parameters()) for m in models])
        self.buffers = _stacked([dict(m.named_buffers()) for m in models])
        # The copy's own values are never read: its memory need not be kept.
        for name, parameter in model.named_parameters():
            parameter.data = self.parameters[name][0]
        self._worn = _Worn(model)
        self._sliced: tuple[Data, Data] | None = None
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

    @torch.no_grad()
    def labelled(self, label: Callable[[Any, Data], Data], data: Data) -> Data:
        """What every model makes of its own slice of the data."""
        return self._values(label, data)

    def _values(self, quantity: Callable[[Any, Data], Any], data: Data) -> Any:
        state = {**self.parameters, **self.buffers}
        if self.size == 1:
            # A plain dictionary: walking it as a tree costs more than a small step. And
            # squeezed: the gradient of an index is a copy into zeros.
            only = {name: tensor.squeeze(0) for name, tensor in state.items()}
            alone = self._worn(quantity, only, self._first(data))
            return pytree.tree_map(lambda leaf: leaf[None], alone)
        return vmap(lambda s, d: self._worn(quantity, s, d))(state, data)

    def _first(self, data: Data) -> Data:
        """The data of the first model; data that stay the same are looked at once."""
        if self._sliced is None or self._sliced[0] is not data:
            self._sliced = data, pytree.tree_map(lambda leaf: leaf[0], data)
        return self._sliced[1]

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


def _stacked(named: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {
        name: torch.stack([tensors[name].detach() for tensors in named])
        for name in named[0]
    }
