"""One intervention as edits by site, and the proof that it changed something."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce

from jaxtyping import Bool, Shaped
from torch import Tensor

from circuits.hooks import Edit, Model, intervene
from circuits.sites import Site
from trained.errors import BadInput

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
