"""What happens to a part: the rules, and the proof that one changed something.

A rule gives the edit of every part as a function of the activation; the part's mask
keeps the rest (`part_edits`). Values of rules have all axes of the activation, 1 where
they are shared, or the last one alone: others would be broadcast by accident.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from circuits.hooks import Edit, Model, intervene
from circuits.sites import Site
from probes.alignment import sparsified
from trained.errors import BadInput, NothingChanged, unknown
from trained.task import Batch

from .part import (
    Part,
    columns,
    moved_places,
    place_mask,
    require_same_layout,
    require_same_places,
)
from .passes import activations

Edits = Mapping[Site, Edit]
"""What happens where, in one intervention."""

ROUND_OFF = 1e-5
"""Changes below this share of a vector's largest entry are round-off of batching."""


def merged(edits: Iterable[tuple[Site, Edit]]) -> dict[Site, Edit]:
    """Edits by site; several at one site follow each other in the given order."""
    by_site: dict[Site, list[Edit]] = {}
    for site, edit in edits:
        by_site.setdefault(site, []).append(edit)
    return {site: _in_turn(several) for site, several in by_site.items()}


def constant(value: Tensor) -> Edit:
    """The edit that puts a value there, whatever it was."""
    return lambda _activation: value


def changed(
    before: Shaped[Tensor, "batch ..."], after: Shaped[Tensor, "batch ..."]
) -> Bool[Tensor, " batch"]:
    """Whether an edit changed an activation by more than round-off, by example."""
    size = before.abs().amax(-1, keepdim=True)
    moved = (after - before).abs() > ROUND_OFF * size
    return moved.flatten(1).any(1)


@contextmanager
def acting(
    model: Model, cell: Edits, *, looking: Collection[Site] = ()
) -> Iterator[None]:
    """`intervene`, for edits that must act: `BadInput` if one changed nothing.

    An edit that leaves the activations of all examples as they were is an ablation of
    nothing, a patch from equal prompts, or a knock-out of edges without weight.

    Args:
        model: the model.
        cell: the edits.
        looking: sites where an edit only looks, for the sake of another one.
    """
    moved: set[Site] = set()

    def watched(site: Site, edit: Edit) -> Edit:
        def apply(activation: Tensor) -> Tensor:
            edited = edit(activation)
            if edited.shape == activation.shape and changed(activation, edited).any():
                moved.add(site)
            return edited

        return apply

    with intervene(model, {site: watched(site, edit) for site, edit in cell.items()}):
        yield
    idle = [str(site) for site in cell if site not in {*moved, *looking}]
    if idle:
        names = ", ".join(idle)
        raise NothingChanged(f"the edit at {names} left every activation unchanged")


def _in_turn(edits: list[Edit]) -> Edit:
    def apply(activation: Tensor) -> Tensor:
        return reduce(lambda value, edit: edit(value), edits, activation)

    return apply


Pattern = Float[Tensor, "batch head query key"]
Rows = Float[Tensor, "*batch k d"]
"""Orthonormal or zero, for all examples or for each its own."""


@runtime_checkable
class Rule(Protocol):
    """What happens to parts of a model on given prompts."""

    def edits(
        self, model: Model, batch: Batch, parts: Sequence[Part]
    ) -> dict[Part, Edit]:
        """For every part, the edit of the whole activation at its site."""


def part_edits(
    model: Model, batch: Batch, parts: Sequence[Part], rule: Rule
) -> dict[Part, Edit]:
    """The edits of a rule, each limited to its part."""
    edits = rule.edits(model, batch, parts)
    return {part: part.limited(edits[part], batch) for part in parts}


class _Direct(ABC):
    """A rule that looks at nothing but the activation."""

    def edits(
        self, model: Model, batch: Batch, parts: Sequence[Part]
    ) -> dict[Part, Edit]:
        """The same for every part."""
        del model, batch
        return {part: partial(self.apply, part) for part in parts}

    @abstractmethod
    def apply(self, part: Part, activation: Tensor) -> Tensor:
        """What takes the activation's place."""


class _Replacing(ABC):
    """A rule whose values are known before the pass."""

    def edits(
        self, model: Model, batch: Batch, parts: Sequence[Part]
    ) -> dict[Part, Edit]:
        """The values in place of the parts."""
        values = self.values(model, batch, parts)
        return {part: partial(_expanded, value) for part, value in values.items()}

    @abstractmethod
    def values(
        self, model: Model, batch: Batch, parts: Sequence[Part]
    ) -> dict[Part, Tensor]:
        """What takes the place of every part; broadcasts against the activation."""


@dataclass(frozen=True)
class Zero(_Direct):
    """Nothing at all."""

    def apply(self, part: Part, activation: Tensor) -> Tensor:
        """Zero."""
        del part
        return torch.zeros_like(activation)


@dataclass(frozen=True, eq=False)
class Put(_Direct):
    """A given value: a vector, a fixed attention pattern, each example's own."""

    value: Tensor

    def apply(self, part: Part, activation: Tensor) -> Tensor:
        """The value."""
        return _fitted(self.value, part, activation)


@dataclass(frozen=True, eq=False)
class Add(_Direct):
    """A vector more: a direction to steer by, a change of each example's own."""

    vector: Tensor

    def apply(self, part: Part, activation: Tensor) -> Tensor:
        """The sum."""
        return activation + _fitted(self.vector, part, activation)


@dataclass(frozen=True, eq=False)
class Remove(_Direct):
    """The activation without its component in a subspace of its last axis.

    Attributes:
        basis: any rows that span it, [k, d] or each example's own, [batch, k, d].
    """

    basis: Float[Tensor, "..."]

    @cached_property
    def _rows(self) -> Rows:
        return orthonormal(self.basis)

    def apply(self, part: Part, activation: Tensor) -> Tensor:
        """What is orthogonal to the subspace."""
        return activation - _component(self._rows, part, activation)


@dataclass(frozen=True)
class Keep(_Direct):
    """Of the last axis only a share is kept, the rest becomes zero.

    Attributes:
        share: how much stays, in (0, 1].
        seed: None: the largest by absolute value stay, place by place; a number: as
            many units that it draws stay, the same at all places, for a control.
    """

    share: float
    seed: int | None = None

    def apply(self, part: Part, activation: Tensor) -> Tensor:
        """What is kept, beside zeros."""
        if self.seed is None:
            return sparsified(activation, self.share)
        source = torch.Generator().manual_seed(self.seed + part.layer)
        drawn = torch.rand(activation.shape[-1], generator=source)
        kept = sparsified(drawn, self.share).to(activation.device) > 0
        return torch.where(kept, activation, 0.0)


@dataclass(frozen=True)
class Sharpen(_Direct):
    """Rows of a pattern as if their scores were larger: p^power, renormalised.

    Power 1 changes nothing, power 0 spreads a row evenly over the keys it has weight
    on. Keys without weight stay without.
    """

    power: int | float

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise BadInput(f"power {self.power}: it must not be negative")

    def apply(self, part: Part, activation: Tensor) -> Tensor:
        """The sharper rows."""
        if part.kind != "pattern" or part.units is not None:
            raise BadInput(f"only whole rows of a pattern are sharpened, not {part}")
        largest = activation.amax(-1, keepdim=True)
        share = torch.where(activation > 0, activation / largest, 0.0)
        odds = torch.where(activation > 0, share**self.power, 0.0)
        return renormalised(odds, activation)


@dataclass(frozen=True, eq=False)
class Permute(_Direct):
    """Entries along an axis re-ordered: entry i becomes what entry order[i] was.

    Attributes:
        order: one for all examples, or a tensor [batch, entry] with each one's own.
        axis: of the activation, such as -1 for the keys of a pattern.
    """

    order: Sequence[int] | Int[Tensor, "..."]
    axis: int = -1

    def apply(self, part: Part, activation: Tensor) -> Tensor:
        """The entries in their new order."""
        shape, n_axes = activation.shape, activation.ndim
        if not -n_axes <= self.axis < n_axes:
            raise unknown(f"axis of {part.site}", self.axis, range(-n_axes, n_axes))
        order = torch.as_tensor(self.order, device=activation.device)
        axis, size = self.axis % n_axes, shape[self.axis]
        rows = () if order.ndim == 1 or axis == 0 else (shape[0],)
        every = torch.arange(size, device=order.device)
        if order.shape != (*rows, size) or bool((order.sort(-1).values != every).any()):
            raise BadInput(
                f"an order of shape {tuple(order.shape)} for axis {self.axis} of "
                f"{part.site} with shape {tuple(shape)}: it must name every index "
                "once, for all examples or for each"
            )
        places = {axis: size} if order.ndim == 1 else {0: shape[0], axis: size}
        index = order.reshape([places.get(number, 1) for number in range(n_axes)])
        return activation.take_along_dim(index, axis)


@dataclass(frozen=True)
class Mean(_Replacing):
    """The mean of the part's activation over reference prompts.

    Attributes:
        reference: the prompts, in batches.
        over: "tokens": one mean over examples and over the part's positions (all
            real tokens, or the role's); "examples": one mean for each position, for
            prompts that are built alike.
    """

    reference: Sequence[Batch]
    over: Literal["tokens", "examples"] = "tokens"

    def __post_init__(self) -> None:
        if self.over not in ("tokens", "examples"):
            raise unknown("over", self.over, ("tokens", "examples"))
        if not self.reference:
            raise BadInput("Mean needs at least one reference batch")

    def values(
        self, model: Model, batch: Batch, parts: Sequence[Part]
    ) -> dict[Part, Tensor]:
        """The mean of every part over the reference."""
        if self.over == "examples":
            self._check_layout(batch, parts)
        sums: dict[Part, Tensor] = {}
        counts: dict[Part, int] = {}
        add = self._add_tokens if self.over == "tokens" else self._add_examples
        for reference in self.reference:
            seen = activations(model, reference, sorted({p.site for p in parts}))
            for part in parts:
                total, count = add(part, reference, seen[part.site])
                sums[part] = sums.get(part, 0) + total
                counts[part] = counts.get(part, 0) + count
        means = {part: sums[part] / counts[part] for part in parts}
        if self.over == "tokens":
            return means
        return {part: self._spread(part, batch, mean) for part, mean in means.items()}

    def _check_layout(self, batch: Batch, parts: Sequence[Part]) -> None:
        by_role = all(isinstance(part.positions, str) for part in parts)
        if by_role and all(part.kind != "pattern" for part in parts):
            return
        length = batch.tokens.shape[1]
        for other in (batch, *self.reference):
            if other.tokens.shape[1] != length or not bool(other.real.all()):
                raise BadInput(
                    "a mean for each position needs prompts of one length, without "
                    'padding: over="tokens", or name a role'
                )

    def _add_tokens(
        self, part: Part, batch: Batch, activation: Tensor
    ) -> tuple[Tensor, int]:
        if part.kind == "pattern":
            raise BadInput(
                'the mean of a pattern over tokens has no keys: over="examples"'
            )
        chosen = place_mask(batch, part.positions) & batch.real
        if part.positions is None and activation.shape[1] == 1:
            # Models of one output position.
            chosen = chosen.any(1, keepdim=True)
        return activation[chosen].sum(0), int(chosen.sum())

    def _add_examples(
        self, part: Part, batch: Batch, activation: Tensor
    ) -> tuple[Tensor, int]:
        if part.kind == "pattern" or part.positions is None:
            return activation.sum(0), len(activation)
        own = columns(batch, part.positions)
        rows = torch.arange(len(own), device=own.device)[:, None]
        return activation[rows, own].sum(0), len(activation)

    def _spread(self, part: Part, batch: Batch, mean: Tensor) -> Tensor:
        """The means by position, where the prompts have these positions."""
        if part.kind == "pattern" or part.positions is None:
            return mean
        own = columns(batch, part.positions)
        several = mean.expand(len(own), *mean.shape)
        source = torch.arange(own.shape[1], device=own.device).expand_as(own)
        return moved_places(several, source, own, batch.tokens.shape[1])


@dataclass(frozen=True)
class Transplant(_Replacing):
    """The activation of another prompt: example i takes it from donor i.

    A role's positions may differ between an example and its donor.

    Attributes:
        donors: the other prompts.
        seen: their activations, where a pass over them has been made already.
    """

    donors: Batch
    seen: Mapping[Site, Tensor] | None = None

    def values(
        self, model: Model, batch: Batch, parts: Sequence[Part]
    ) -> dict[Part, Tensor]:
        """The donors' activations, moved to the prompts' positions."""
        if len(self.donors) != len(batch):
            raise BadInput(f"{len(self.donors)} donors for {len(batch)} examples")
        seen = self.seen
        if seen is None:
            sites = sorted({part.site for part in parts})
            seen = activations(model, self.donors, sites)
        return {part: self._aligned(part, batch, seen[part.site]) for part in parts}

    def _aligned(self, part: Part, batch: Batch, seen: Tensor) -> Tensor:
        if not isinstance(part.positions, str):
            require_same_layout(batch, self.donors)
            return seen
        if part.kind == "pattern":
            # Their keys are positions too, and these cannot be moved.
            require_same_layout(batch, self.donors)
            require_same_places(batch, self.donors, part.positions)
            return seen
        source = columns(self.donors, part.positions)
        own = columns(batch, part.positions)
        return moved_places(seen, source, own, batch.tokens.shape[1])


@dataclass(frozen=True, eq=False)
class TransplantWithin:
    """Of the donors' activation only the component in a subspace.

    See `Transplant` for the donors and `Remove` for the basis.
    """

    donors: Batch
    basis: Float[Tensor, "..."]

    def edits(
        self, model: Model, batch: Batch, parts: Sequence[Part]
    ) -> dict[Part, Edit]:
        """The activation with the donors' component in place of its own."""
        values = Transplant(self.donors).values(model, batch, parts)
        rows = orthonormal(self.basis)

        def edit(part: Part, activation: Tensor) -> Tensor:
            difference = _expanded(values[part], activation) - activation
            return activation + _component(rows, part, difference)

        return {part: partial(edit, part) for part in parts}


@dataclass(frozen=True)
class Resample(_Replacing):
    """The activation of a reference prompt drawn at random, one for each example.

    All parts of an example take it from the same reference prompt.
    """

    reference: Batch
    seed: int

    def values(
        self, model: Model, batch: Batch, parts: Sequence[Part]
    ) -> dict[Part, Tensor]:
        """The drawn prompts' activations."""
        source = torch.Generator().manual_seed(self.seed)
        rows = torch.randint(len(self.reference), (len(batch),), generator=source)
        donors = self.reference.rows(rows.to(batch.tokens.device))
        return Transplant(donors).values(model, batch, parts)


def renormalised(pattern: Pattern, original: Pattern) -> Pattern:
    """Rows scaled to the sums of the original ones; rows without weight stay zero.

    A query whose only keys are cut reads nothing. Rows that kept all their weight are
    left as they are, to the last bit.
    """
    total, before = pattern.sum(-1, keepdim=True), original.sum(-1, keepdim=True)
    scaled = torch.where(total > 0, pattern * (before / total), 0.0)
    untouched = (pattern == original).all(-1, keepdim=True)
    return torch.where(untouched, original, scaled)


def orthonormal(basis: Float[Tensor, "..."]) -> Rows:
    """Orthonormal rows that span the same subspace; those beyond its rank are zero."""
    if basis.ndim not in (2, 3):
        raise BadInput(
            f"a basis of shape {tuple(basis.shape)}: its rows are [k, d] for all "
            "examples or [batch, k, d]"
        )
    # Some devices have neither doubles nor this decomposition.
    exact = basis.detach().cpu().double()
    _, sizes, rows = torch.linalg.svd(exact, full_matrices=False)
    kept = sizes > ROUND_OFF * sizes.amax(-1, keepdim=True)
    return rows * kept[..., None]


def _component(rows: Rows, part: Part, activation: Tensor) -> Tensor:
    """The projection of an activation's last axis onto orthonormal rows."""
    shape = activation.shape
    if rows.shape[-1] != shape[-1] or rows.shape[:-2] not in ((), shape[:1]):
        raise BadInput(
            f"a basis of shape {tuple(rows.shape)} for {part.site} of shape "
            f"{tuple(shape)}"
        )
    rows = rows.to(activation)
    flat = activation.reshape(len(activation), -1, shape[-1])
    return ((flat @ rows.mT) @ rows).reshape(shape)


def _fitted(value: Tensor, part: Part, activation: Tensor) -> Tensor:
    """A value as large as the activation; `BadInput` if that would be by accident."""
    own, shape = value.shape, activation.shape
    pairs = zip(own, shape, strict=False)
    whole = len(own) == len(shape) and all(a in (1, b) for a, b in pairs)
    if not whole and own not in ((), shape[-1:]):
        raise BadInput(
            f"a value of shape {tuple(own)} for {part.site} of shape {tuple(shape)}: "
            "give all axes, 1 where it is shared, or the last one alone"
        )
    return _expanded(value, activation)


def _expanded(value: Tensor, activation: Tensor) -> Tensor:
    return value.to(activation).expand_as(activation)
