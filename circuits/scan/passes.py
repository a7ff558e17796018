"""One forward pass over a batch, and what is kept of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.backends import backend_of
from circuits.backends.view import View
from circuits.hooks import forward, module_of, reading, record, sites_of
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from trained.interrupts import Holding
from trained.task import Batch


def at_least_single(tensor: Tensor) -> Tensor:
    """The same numbers in single precision, or in double if they are."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


@dataclass(frozen=True, eq=False)
class Seen:
    """What a pass showed.

    Attributes:
        states: by site, at the columns that were asked for.
        views: by layer, what the view asked of its pattern.
    """

    states: dict[Site, Float[Tensor, "batch place width"]]
    views: dict[int, Float[Tensor, "batch head query last"]] = field(
        default_factory=dict
    )

    def stacked(self, sites: Sequence[Site]) -> Float[Tensor, "layer batch place d"]:
        """The states at some sites, on one device."""
        first = self.states[sites[0]].device
        return torch.stack([self.states[site].to(first) for site in sites])


@torch.no_grad()
def observe(
    model: LanguageModel,
    batch: Batch,
    sites: Sequence[Site],
    columns: Int[Tensor, "batch place"],
    view: View | None,
) -> Seen:
    """Run a batch once; keep states at some columns, and a view of every pattern.

    Nothing is unembedded.
    """
    module = module_of(model)
    backend, views = backend_of(module), dict[int, Tensor]()
    layers = pattern_layers(model) if view is not None else ()
    nowhere = batch.tokens[:, :0]
    with (
        reading(model, nowhere),
        record(model, sites, columns) as states,
        Holding() as held,
    ):
        for layer in layers:
            show: Callable[[Tensor], None] = partial(_keep, views, layer)
            held.add(backend.attach_view, module, layer, view, show)
        forward(model, batch)
    return Seen({site: at_least_single(state) for site, state in states.items()}, views)


def _keep(views: dict[int, Tensor], layer: int, view: Tensor) -> None:
    views[layer] = at_least_single(view.detach()).cpu()


def pattern_layers(model: LanguageModel) -> tuple[int, ...]:
    """The layers that have attention patterns."""
    return tuple(site.layer for site in sites_of(model) if site.kind == "pattern")
