"""Which positions of a prompt are meant: columns, a role, the last token, or all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from circuits.models.prompts import Prompts
from circuits.sites import Kind, Site
from probes.measurement import Label
from trained.errors import BadInput, unknown
from trained.task import Batch

Examples = Batch | Prompts
"""What a model is run on."""

Places = str | int | tuple[int, ...] | None
"""A role's name, "last" (each prompt's last token), columns, or None for all."""


def columns(examples: Examples, places: Places) -> Int[Tensor, "batch place"]:
    """The columns of the places, prompt by prompt."""
    n_examples, n_pos = examples.tokens.shape
    device = examples.tokens.device
    if isinstance(places, str):
        return _named(examples, places)
    if places is None:
        wanted = tuple(range(n_pos))
    else:
        wanted = (places,) if isinstance(places, int) else places
    wrong = [column for column in wanted if not 0 <= column < n_pos]
    if wrong or not wanted:
        raise unknown("position", wrong or "(none)", f"0 to {n_pos - 1}")
    return torch.tensor(wanted, device=device).expand(n_examples, len(wanted))


def column(examples: Examples, places: Places) -> Int[Tensor, " batch"]:
    """The one column of the places, prompt by prompt."""
    found = columns(examples, places)
    if found.shape[1] != 1:
        raise BadInput(f"{places!r} are {found.shape[1]} positions: one is needed")
    return found[:, 0]


def place_mask(examples: Examples, places: Places) -> Bool[Tensor, "batch pos"]:
    """True at the places; with all of them, padding included."""
    mask = torch.zeros_like(examples.tokens, dtype=torch.bool)
    return mask.scatter(1, columns(examples, places), True)


def real_tokens(examples: Examples) -> Bool[Tensor, "batch pos"]:
    """True at what is not padding."""
    if isinstance(examples, Prompts):
        return examples.mask
    return torch.ones_like(examples.tokens, dtype=torch.bool)


def require_same_layout(examples: Examples, others: Examples) -> None:
    """`BadInput` unless a column means the same in both: as long, as padded."""
    real, other = real_tokens(examples), real_tokens(others)
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


def require_same_places(examples: Examples, others: Examples, places: Places) -> None:
    """`BadInput` unless the places are the same columns in both."""
    if not torch.equal(columns(examples, places), columns(others, places)):
        raise BadInput(f"{places!r} is at other positions in the other prompts")


def rows_of(examples: Examples, rows: Int[Tensor, " row"]) -> Examples:
    """Some of the prompts, in the given order, with repetition."""
    roles = {name: places[rows] for name, places in examples.roles.items()}
    tokens, targets = examples.tokens[rows], examples.targets[rows]
    if isinstance(examples, Prompts):
        return Prompts(tokens, examples.mask[rows], targets, roles)
    return Batch(tokens, targets, roles)


def with_targets(examples: Examples, targets: Int[Tensor, " batch"]) -> Examples:
    """The same prompts with other expected answers."""
    if len(targets) != len(examples.targets):
        raise BadInput(f"{len(targets)} targets for {len(examples.targets)} prompts")
    if isinstance(examples, Prompts):
        return Prompts(examples.tokens, examples.mask, targets, examples.roles)
    return Batch(examples.tokens, targets, examples.roles)


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


def _named(examples: Examples, name: str) -> Int[Tensor, "batch place"]:
    if name != "last" or name in examples.roles:
        if name not in examples.roles:
            raise unknown("role", name, ["last", *sorted(examples.roles)])
        return examples.role(name)
    if isinstance(examples, Prompts):
        return examples.last[:, None]
    return columns(examples, examples.tokens.shape[1] - 1)


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
