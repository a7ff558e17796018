"""Which part of a model is meant: a site, some heads, positions, units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from circuits.hooks import Edit
from circuits.sites import Kind, Site
from probes.measurement import Label
from trained.errors import BadInput, unknown
from trained.task import Batch

Places = str | int | tuple[int, ...] | None
"""A role's name, "last" (each prompt's last token), columns, or None for all."""


def columns(examples: Batch, places: Places) -> Int[Tensor, "batch place"]:
    """The columns of the places, prompt by prompt."""
    n_examples, n_pos = examples.tokens.shape
    device = examples.tokens.device
    if isinstance(places, str):
        return examples.role(places)
    if places is None:
        wanted = tuple(range(n_pos))
    else:
        wanted = (places,) if isinstance(places, int) else places
    wrong = [column for column in wanted if not 0 <= column < n_pos]
    if wrong or not wanted:
        raise unknown("position", wrong or "(none)", f"0 to {n_pos - 1}")
    return torch.tensor(wanted, device=device).expand(n_examples, len(wanted))


def column(examples: Batch, places: Places) -> Int[Tensor, " batch"]:
    """The one column of the places, prompt by prompt."""
    found = columns(examples, places)
    if found.shape[1] != 1:
        raise BadInput(f"{places!r} are {found.shape[1]} positions: one is needed")
    return found[:, 0]


def place_mask(examples: Batch, places: Places) -> Bool[Tensor, "batch pos"]:
    """True at the places; with all of them, padding included."""
    mask = torch.zeros_like(examples.tokens, dtype=torch.bool)
    return mask.scatter(1, columns(examples, places), True)


def require_same_layout(examples: Batch, others: Batch) -> None:
    """`BadInput` unless a column means the same in both: as long, as padded."""
    real, other = examples.real, others.real
    if real.shape[1] != other.shape[1]:
        raise BadInput(
            f"prompts of {other.shape[1]} and of {real.shape[1]} tokens: name a role, "
            "or use prompts of one length"
        )
    if real.shape != other.shape or not torch.equal(real, other):
        raise BadInput(
            "prompts are padded at different positions: name a role, or use prompts "
            "of one length"
        )


def require_same_places(examples: Batch, others: Batch, places: Places) -> None:
    """`BadInput` unless the places are the same columns in both."""
    if not torch.equal(columns(examples, places), columns(others, places)):
        raise BadInput(f"{places!r} is at other positions in the other prompts")


def moved_places(
    activation: Shaped[Tensor, "batch pos ..."],
    source: Int[Tensor, "batch place"],
    target: Int[Tensor, "batch place"],
    n_pos: int,
) -> Shaped[Tensor, "batch n_pos ..."]:
    """An activation whose source columns lie at the target columns; 0 elsewhere."""
    if source.shape != target.shape:
        raise BadInput(
            f"{source.shape[1]} positions for {target.shape[1]}: a role must have as "
            "many in both batches"
        )
    rows = torch.arange(len(source), device=source.device)[:, None]
    out = activation.new_zeros(len(activation), n_pos, *activation.shape[2:])
    out[rows, target] = activation[rows, source]
    return out


HEAD_AXIS: dict[Kind, int] = {"pattern": 1, "value": 2, "head_out": 2}
"""Where the heads are, in the activations that tell heads apart."""

Item = TypeVar("Item", covariant=True)


@dataclass(frozen=True, eq=False)
class Part:
    """A site, or some heads, positions and units of it.

    A head is `Part("head_out", 3, 1)`, a layer's attention `Part("attn_out", 3)`, an
    MLP at a role's positions `Part("mlp_out", 3, positions="subject")`, two of its
    neurons `Part("mlp_act", 3, units=(5, 8))`. Two parts are equal only if they are
    one object.

    Attributes:
        kind: of the site.
        layer: of the site.
        head: one head, some, or None for all; of values, key-value heads.
        positions: where in the prompts; of a pattern, its queries.
        units: entries of the last axis (neurons, columns of a residual, keys of a
            pattern): some for all examples, or a tensor [batch, unit]
            with each example's own.
    """

    kind: Kind
    layer: int = 0
    head: int | tuple[int, ...] | None = None
    positions: Places = None
    units: tuple[int, ...] | Int[Tensor, "..."] | None = None

    def __post_init__(self) -> None:
        if self.heads is not None and self.site.kind not in HEAD_AXIS:
            raise unknown("site with heads", self.site, HEAD_AXIS)
        if isinstance(self.units, Tensor) and self.units.ndim != 2:
            raise BadInput(
                f"units of shape {tuple(self.units.shape)}: a tensor needs the axes "
                "[batch, unit]; a tuple serves all examples"
            )

    @property
    def site(self) -> Site:
        """Where the part is."""
        return Site(self.kind, self.layer)

    @property
    def heads(self) -> tuple[int, ...] | None:
        """The heads' numbers; None for all of them."""
        return (self.head,) if isinstance(self.head, int) else self.head

    @property
    def position_axis(self) -> int:
        """Where the activation has its positions."""
        return 2 if self.kind == "pattern" else 1

    def mask(
        self, batch: Batch, activation: Shaped[Tensor, "batch ..."]
    ) -> Bool[Tensor, "batch ..."]:
        """True at the part; broadcasts against the activation."""
        shape, n_axes = activation.shape, activation.ndim
        own = [1] * (n_axes - 1)
        mask = torch.ones(shape[0], *own, dtype=torch.bool, device=activation.device)
        if self.positions is not None:
            places = place_mask(batch, self.positions)
            if places.shape != (shape[0], shape[self.position_axis]):
                raise BadInput(
                    f"{self.site} has {shape[0]} examples of "
                    f"{shape[self.position_axis]} positions, the prompts are "
                    f"{len(places)} of {places.shape[1]}: leave out positions"
                )
            mask = mask & _along(places, {0: 0, 1: self.position_axis}, n_axes)
        if self.heads is not None:
            axis = HEAD_AXIS[self.kind]
            chosen = _chosen("head", self.heads, shape[axis], mask)
            mask = mask & _along(chosen, {0: axis}, n_axes)
        if isinstance(self.units, Tensor):
            units = self._own_units(activation)
            mask = mask & _along(units, {0: 0, 1: n_axes - 1}, n_axes)
        elif self.units is not None:
            mask = mask & _chosen("unit", self.units, shape[-1], mask)
        return mask

    def limited(self, edit: Edit, batch: Batch) -> Edit:
        """An edit that leaves everything beside the part as it was."""

        def apply(activation: Tensor) -> Tensor:
            chosen = self.mask(batch, activation)
            return torch.where(chosen, edit(activation), activation)

        return apply

    def _own_units(self, activation: Tensor) -> Bool[Tensor, "batch unit"]:
        """True at the units of each example."""
        assert isinstance(self.units, Tensor)
        n_examples, width = len(activation), activation.shape[-1]
        units = self.units.to(activation.device)
        if len(units) != n_examples:
            raise BadInput(
                f"units of {len(units)} examples for {n_examples} at {self.site}"
            )
        wrong = units[(units < 0) | (units >= width)]
        if wrong.numel() or not units.numel():
            given = sorted(set(wrong.tolist())) or "(none)"
            raise unknown("unit", given, f"0 to {width - 1}")
        mask = activation.new_zeros(n_examples, width, dtype=torch.bool)
        return mask.scatter(1, units, True)


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
) -> Grid[Part]:
    """One part for every layer."""
    items = tuple(Part(kind, layer, None, positions) for layer in layers)
    return Grid({"layer": tuple(layers)}, items)


def position_grid(
    kind: Kind, layers: Sequence[int], positions: Sequence[str | int]
) -> Grid[Part]:
    """One part for every layer and position; a position is a column or a role."""
    items = tuple(
        Part(kind, layer, None, place) for layer in layers for place in positions
    )
    return Grid({"layer": tuple(layers), "position": tuple(positions)}, items)


def head_grid(
    kind: Kind,
    layers: Sequence[int],
    heads: Sequence[int],
    *,
    positions: Places = None,
) -> Grid[Part]:
    """One part for every layer and head."""
    items = tuple(
        Part(kind, layer, head, positions) for layer in layers for head in heads
    )
    return Grid({"layer": tuple(layers), "head": tuple(heads)}, items)


def _along(mask: Tensor, axes: Mapping[int, int], n_axes: int) -> Tensor:
    """A mask whose axes are put where the activation has them."""
    shape = [1] * n_axes
    for own, place in axes.items():
        shape[place] = mask.shape[own]
    return mask.reshape(shape)


def _chosen(
    what: str, numbers: tuple[int, ...], size: int, like: Tensor
) -> Bool[Tensor, " size"]:
    """True at some entries of an axis; `BadInput` if it lacks one."""
    wrong = [number for number in numbers if not 0 <= number < size]
    if wrong or not numbers:
        raise unknown(what, wrong or "(none)", f"0 to {size - 1}")
    chosen = torch.zeros(size, dtype=torch.bool, device=like.device)
    chosen[list(numbers)] = True
    return chosen
