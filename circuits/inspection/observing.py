"""One forward pass over a batch, and what is kept of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.backends import backend_of
from circuits.backends.view import View
from circuits.hooks import Model, forward, module_of, reading, record, sites_of
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from trained.interrupts import Holding
from trained.task import Batch

from .subject import residual_layers


def at_least_single(tensor: Tensor) -> Tensor:
    """The same numbers in single precision, or in double if they are."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


@dataclass(frozen=True, eq=False)
class Look:
    """What is asked of every pattern, and what is kept of the answer.

    Attributes:
        view: the queries, and the sets of keys.
        keep: from [batch, head, query, last] to what is kept.
    """

    view: View
    keep: Callable[[Tensor], Tensor] = torch.Tensor.cpu


@dataclass(frozen=True, eq=False)
class Seen:
    """What a pass showed.

    Attributes:
        states: by site, at the columns that were asked for.
        views: by the name of a look and the layer, what was kept.
    """

    states: dict[Site, Float[Tensor, "batch place width"]]
    views: dict[str, dict[int, Tensor]] = field(default_factory=dict)

    def stacked(self, sites: Sequence[Site]) -> Float[Tensor, "layer batch place d"]:
        """The states at some sites, on one device."""
        first = self.states[sites[0]].device
        return torch.stack([self.states[site].to(first) for site in sites])


@torch.no_grad()
def observe(
    model: LanguageModel,
    batch: Batch,
    sites: Sequence[Site],
    columns: Int[Tensor, "batch place"] | None,
    looks: Mapping[str, Look],
) -> Seen:
    """Run a batch once; keep states at some columns, and looks at every pattern.

    Nothing is unembedded. Without columns states are kept at all of them, as they are.
    """
    module = module_of(model)
    backend, views = backend_of(module), {name: dict[int, Tensor]() for name in looks}
    nowhere = batch.tokens[:, :0]
    with (
        reading(model, nowhere),
        record(model, sites, columns) as states,
        Holding() as held,
    ):
        for name, look in looks.items():
            for layer in pattern_layers(model):
                show = partial(_keep, views[name], layer, look.keep)
                held.add(backend.attach_view, module, layer, look.view, show)
        forward(model, batch)
    if columns is not None:
        states = {site: at_least_single(state) for site, state in states.items()}
    return Seen(states, views)


def _keep(
    views: dict[int, Tensor],
    layer: int,
    keep: Callable[[Tensor], Tensor],
    view: Tensor,
) -> None:
    views[layer] = keep(at_least_single(view.detach()))


def stream_sites(model: Model) -> tuple[Site, ...]:
    """The residual before the first layer and after each."""
    layers = residual_layers(model)
    return (Site("resid_pre", layers[0]), *(Site("resid_post", n) for n in layers))


def pattern_layers(model: LanguageModel) -> tuple[int, ...]:
    """The layers that have attention patterns."""
    return tuple(site.layer for site in sites_of(model) if site.kind == "pattern")
