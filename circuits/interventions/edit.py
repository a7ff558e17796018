"""One intervention as edits by site, and the proof that it changed something."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from circuits.hooks import Edit, Model, intervene
from circuits.sites import Site
from trained.errors import BadInput, unknown

from .part import (
    Examples,
    Target,
    columns,
    moved_places,
    place_mask,
    real_tokens,
    require_same_layout,
    require_same_places,
    rows_of,
)
from .passes import activations

Cell = Mapping[Site, Edit]
"""What happens where, in one intervention."""

ROUND_OFF = 1e-5
"""Changes below this share of a vector's largest entry are round-off of batching."""


def merged(edits: Iterable[tuple[Site, Edit]]) -> dict[Site, Edit]:
    """Edits by site; several at one site follow each other in the given order."""
    by_site: dict[Site, list[Edit]] = {}
    for site, edit in edits:
        by_site.setdefault(site, []).append(edit)
    return {site: _in_turn(several) for site, several in by_site.items()}


def changed(
    before: Shaped[Tensor, "batch ..."], after: Shaped[Tensor, "batch ..."]
) -> Bool[Tensor, " batch"]:
    """Whether an edit changed an activation by more than round-off, by example."""
    size = before.abs().amax(-1, keepdim=True)
    moved = (after - before).abs() > ROUND_OFF * size
    return moved.flatten(1).any(1)


@contextmanager
def acting(
    model: Model, cell: Cell, *, looking: Collection[Site] = ()
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
        raise BadInput(f"the edit at {', '.join(idle)} left every activation unchanged")


def _in_turn(edits: list[Edit]) -> Edit:
    def apply(activation: Tensor) -> Tensor:
        return reduce(lambda value, edit: edit(value), edits, activation)

    return apply


@runtime_checkable
class Replacement(Protocol):
    """A rule for what takes the place of a target."""

    def values(
        self, model: Model, examples: Examples, targets: Sequence[Target]
    ) -> dict[Target, Tensor]:
        """For every target, what replaces it; broadcasts against the activation."""


@dataclass(frozen=True)
class Zero:
    """Nothing at all."""

    def values(
        self, model: Model, examples: Examples, targets: Sequence[Target]
    ) -> dict[Target, Tensor]:
        """Zero for every target."""
        del model
        zero = torch.zeros((), device=examples.tokens.device)
        return dict.fromkeys(targets, zero)


@dataclass(frozen=True)
class Mean:
    """The mean of the target's activation over reference prompts.

    Attributes:
        reference: the prompts, in batches.
        over: "tokens": one mean over examples and over the target's positions (all
            real tokens, or the role's); "examples": one mean for each position, for
            prompts that are built alike.
    """

    reference: Sequence[Examples]
    over: Literal["tokens", "examples"] = "tokens"

    def __post_init__(self) -> None:
        if self.over not in ("tokens", "examples"):
            raise unknown("over", self.over, ("tokens", "examples"))
        if not self.reference:
            raise BadInput("Mean needs at least one reference batch")

    def values(
        self, model: Model, examples: Examples, targets: Sequence[Target]
    ) -> dict[Target, Tensor]:
        """The mean of every target over the reference."""
        if self.over == "examples":
            self._check_layout(examples, targets)
        sums: dict[Target, Tensor] = {}
        counts: dict[Target, int] = {}
        add = self._add_tokens if self.over == "tokens" else self._add_examples
        for batch in self.reference:
            seen = activations(model, batch, sorted({t.site for t in targets}))
            for target in targets:
                total, count = add(target, batch, seen[target.site])
                sums[target] = sums.get(target, 0) + total
                counts[target] = counts.get(target, 0) + count
        means = {target: sums[target] / counts[target] for target in targets}
        if self.over == "tokens":
            return means
        return {t: self._spread(t, examples, mean) for t, mean in means.items()}

    def _check_layout(self, examples: Examples, targets: Sequence[Target]) -> None:
        by_role = all(isinstance(target.positions, str) for target in targets)
        if by_role and all(target.site.kind != "pattern" for target in targets):
            return
        length = examples.tokens.shape[1]
        for batch in (examples, *self.reference):
            if batch.tokens.shape[1] != length or not bool(real_tokens(batch).all()):
                raise BadInput(
                    "a mean for each position needs prompts of one length, without "
                    'padding: over="tokens", or name a role'
                )

    def _add_tokens(
        self, target: Target, batch: Examples, activation: Tensor
    ) -> tuple[Tensor, int]:
        if target.site.kind == "pattern":
            raise BadInput(
                'the mean of a pattern over tokens has no keys: over="examples"'
            )
        chosen = place_mask(batch, target.positions) & real_tokens(batch)
        return activation[chosen].sum(0), int(chosen.sum())

    def _add_examples(
        self, target: Target, batch: Examples, activation: Tensor
    ) -> tuple[Tensor, int]:
        if target.site.kind == "pattern" or target.positions is None:
            return activation.sum(0), len(activation)
        own = columns(batch, target.positions)
        rows = torch.arange(len(own), device=own.device)[:, None]
        return activation[rows, own].sum(0), len(activation)

    def _spread(self, target: Target, examples: Examples, mean: Tensor) -> Tensor:
        """The means by position, where the examples have these positions."""
        if target.site.kind == "pattern" or target.positions is None:
            return mean
        own = columns(examples, target.positions)
        several = mean.expand(len(own), *mean.shape)
        source = torch.arange(own.shape[1], device=own.device).expand_as(own)
        return moved_places(several, source, own, examples.tokens.shape[1])


@dataclass(frozen=True)
class Transplant:
    """The activation of another prompt: example i takes it from donor i.

    A role's positions may differ between an example and its donor.
    """

    donors: Examples

    def values(
        self, model: Model, examples: Examples, targets: Sequence[Target]
    ) -> dict[Target, Tensor]:
        """The donors' activations, moved to the examples' positions."""
        n_donors, n_examples = len(self.donors.targets), len(examples.targets)
        if n_donors != n_examples:
            raise BadInput(f"{n_donors} donors for {n_examples} examples")
        seen = activations(model, self.donors, sorted({t.site for t in targets}))
        return {t: self._aligned(t, examples, seen[t.site]) for t in targets}

    def _aligned(self, target: Target, examples: Examples, seen: Tensor) -> Tensor:
        if not isinstance(target.positions, str):
            require_same_layout(examples, self.donors)
            return seen
        if target.site.kind == "pattern":
            # Their keys are positions too, and these cannot be moved.
            require_same_layout(examples, self.donors)
            require_same_places(examples, self.donors, target.positions)
            return seen
        source = columns(self.donors, target.positions)
        own = columns(examples, target.positions)
        return moved_places(seen, source, own, examples.tokens.shape[1])


@dataclass(frozen=True)
class Resample:
    """The activation of a reference prompt drawn at random, one for each example.

    All targets of an example take it from the same reference prompt.
    """

    reference: Examples
    seed: int

    def values(
        self, model: Model, examples: Examples, targets: Sequence[Target]
    ) -> dict[Target, Tensor]:
        """The drawn prompts' activations."""
        return Transplant(self._donors(examples)).values(model, examples, targets)

    def _donors(self, examples: Examples) -> Examples:
        source = torch.Generator().manual_seed(self.seed)
        n_reference = len(self.reference.targets)
        rows = torch.randint(n_reference, (len(examples.targets),), generator=source)
        return rows_of(self.reference, rows.to(examples.tokens.device))


def replacing(target: Target, examples: Examples, value: Tensor) -> Edit:
    """The edit that puts a value at a target and leaves the rest."""

    def edit(activation: Tensor) -> Tensor:
        chosen = target.mask(examples, activation)
        return torch.where(chosen, value.to(activation), activation)

    return edit
