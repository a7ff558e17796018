"""Which part of an activation is intervened on, and grids of such parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from circuits.sites import Kind, Site
from probes.measurement import Label
from trained.errors import BadInput, unknown

from .places import Examples, Places, place_mask

HEAD_AXIS: dict[Kind, int] = {"pattern": 1, "value": 2, "head_out": 2}
"""Where the heads are, in the activations that tell heads apart."""

Item = TypeVar("Item", covariant=True)


@dataclass(frozen=True)
class Target:
    """A site, or some heads and positions of it.

    Positions of a pattern are its queries; heads of values are key-value heads.

    A head is `Target(Site("head_out", 3), heads=(1,))`, a layer's attention
    `Target(Site("attn_out", 3))`, an MLP at a role's positions
    `Target(Site("mlp_out", 3), positions="subject")`.
    """

    site: Site
    heads: tuple[int, ...] | None = None
    positions: Places = None

    def __post_init__(self) -> None:
        if self.heads is not None and self.site.kind not in HEAD_AXIS:
            raise unknown("site with heads", self.site, HEAD_AXIS)

    @property
    def position_axis(self) -> int:
        """Where the activation has its positions."""
        return 2 if self.site.kind == "pattern" else 1

    def mask(
        self, examples: Examples, activation: Shaped[Tensor, "batch ..."]
    ) -> Bool[Tensor, "batch ..."]:
        """True at the target; broadcasts against the activation."""
        shape = activation.shape
        mask = torch.ones(
            shape[0],
            *[1] * (len(shape) - 1),
            dtype=torch.bool,
            device=activation.device,
        )
        if self.positions is not None:
            places = place_mask(examples, self.positions)
            if places.shape[1] != shape[self.position_axis]:
                raise BadInput(
                    f"{self.site} has {shape[self.position_axis]} positions, the "
                    f"prompts have {places.shape[1]}: leave out positions"
                )
            mask = mask & _along(places, {0: 0, 1: self.position_axis}, len(shape))
        if self.heads is not None:
            axis = HEAD_AXIS[self.site.kind]
            chosen = torch.zeros(shape[axis], dtype=torch.bool, device=mask.device)
            chosen[_checked(self.heads, shape[axis])] = True
            mask = mask & _along(chosen, {0: axis}, len(shape))
        return mask


@dataclass(frozen=True)
class Grid(Generic[Item]):
    """Interventions laid out on labelled axes; items in row-major order."""

    axes: Mapping[str, tuple[Label, ...]]
    items: tuple[Item, ...]

    def __post_init__(self) -> None:
        size = 1
        for labels in self.axes.values():
            size *= len(labels)
        if size != len(self.items) or size == 0:
            sizes = {axis: len(labels) for axis, labels in self.axes.items()}
            raise BadInput(f"a grid of {sizes} cannot hold {len(self.items)} items")


def layer_grid(
    kind: Kind, layers: Sequence[int], *, positions: Places = None
) -> Grid[Target]:
    """One target for every layer."""
    items = tuple(Target(Site(kind, layer), None, positions) for layer in layers)
    return Grid({"layer": tuple(layers)}, items)


def position_grid(
    kind: Kind, layers: Sequence[int], positions: Sequence[str | int]
) -> Grid[Target]:
    """One target for every layer and position; a position is a column or a role."""
    items = tuple(
        Target(Site(kind, layer), None, place)
        for layer in layers
        for place in positions
    )
    return Grid({"layer": tuple(layers), "position": tuple(positions)}, items)


def head_grid(
    kind: Kind,
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    positions: Places = None,
) -> Grid[Target]:
    """One target for every layer and head."""
    items = tuple(
        Target(Site(kind, layer), (head,), positions)
        for layer in layers
        for head in heads
    )
    return Grid({"layer": tuple(layers), "head": tuple(heads)}, items)


def _along(mask: Tensor, axes: Mapping[int, int], n_axes: int) -> Tensor:
    """A mask whose axes are put where the activation has them."""
    shape = [1] * n_axes
    for own, place in axes.items():
        shape[place] = mask.shape[own]
    return mask.reshape(shape)


def _checked(heads: tuple[int, ...], n_heads: int) -> list[int]:
    wrong = [head for head in heads if not 0 <= head < n_heads]
    if wrong or not heads:
        raise unknown("head", wrong or "(none)", f"0 to {n_heads - 1}")
    return list(heads)
