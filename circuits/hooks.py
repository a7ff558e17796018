"""Observe and change a model: `record`, `intervene`, `measure`.

A hook that never fires would make an ablation look harmless; here it is an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from probes.measurement import Measurement
from trained.errors import BadInput
from trained.task import Batch

from .backends import Callback, backend_of
from .backends.anatomy import Readout
from .sites import Kind, Site


@runtime_checkable
class Opened(Protocol):
    """A language model opened by us; what a backend reaches into is its module."""

    @property
    def module(self) -> Any:
        """An HF model, a bridge, an nnsight wrapper."""

    @property
    def readout(self) -> Readout:
        """From the last residual to logits."""

    def __call__(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits at every position."""


Model = nn.Module | Opened
"""A small model, a bridge, a transformers model, or a language model opened by us."""

Edit = Callable[[Tensor], Tensor]
"""activation -> the activation that takes its place, of the same shape."""


@contextmanager
def record(model: Model, sites: Iterable[Site]) -> Iterator[dict[Site, Tensor]]:
    """Collect the activations at some sites of the last forward pass in the block.

    Inside `intervene` it sees the edited activation, around it the original one.
    Raises `BadInput` at the end of the block if a site never fired.
    """
    wanted = tuple(sites)
    activations: dict[Site, Tensor] = {}
    callbacks = {site: partial(_keep, activations, site) for site in wanted}
    with _attached(model, callbacks):
        yield activations
    _require_fired(wanted, activations)


def _keep(activations: dict[Site, Tensor], site: Site, activation: Tensor) -> None:
    activations[site] = activation.detach()


@contextmanager
def intervene(model: Model, edits: Mapping[Site, Edit]) -> Iterator[None]:
    """Replace activations in every forward pass of the block.

    Raises `BadInput` if an edit changes a shape, or if at the end of the block one
    was never applied. The hooks are removed on any way out.
    """
    fired: set[Site] = set()
    callbacks = {
        site: partial(_replace, fired, site, edit) for site, edit in edits.items()
    }
    with _attached(model, callbacks):
        yield
    _require_fired(edits, fired)


def _replace(fired: set[Site], site: Site, edit: Edit, activation: Tensor) -> Tensor:
    fired.add(site)
    edited = edit(activation)
    if edited.shape != activation.shape:
        raise BadInput(
            f"the edit at {site} changed the shape from "
            f"{tuple(activation.shape)} to {tuple(edited.shape)}"
        )
    return edited


@dataclass(frozen=True)
class Signal:
    """A quantity per example, computed inside the hook at every layer of a kind.

    Attributes:
        kind: where the activation is taken.
        function: (activation, batch) -> values with the batch axis first; the batch
            is what `measure` was given.
        axes: names of the axes after the batch axis.
        unit: what the values are in.
    """

    kind: Kind
    function: Callable[[Tensor, Any], Tensor]
    axes: tuple[str, ...] = ()
    unit: str = ""


@torch.no_grad()
def measure(
    model: Model, batches: Iterable[Batch], signals: Mapping[str, Signal]
) -> dict[str, Measurement]:
    """Mean and standard error over examples of every signal, in one pass per batch.

    Each signal is reduced inside the hook and folded into running moments, so memory
    depends neither on the number of batches nor on the square of their length.

    Returns:
        For every signal a Measurement with axes ("statistic", "layer", *axes) and the
        statistics "mean" and "standard_error".
    """
    moments = {
        (name, site): _Moments()
        for name, signal in signals.items()
        for site in _layers(model, signal.kind)
    }
    n_examples = 0
    for batch in batches:
        if len(batch.targets) == 0:
            continue
        n_examples += len(batch.targets)
        _measure_batch(model, batch, signals, moments)
    if n_examples == 0:
        raise BadInput("measure was given no batch")
    return {
        name: _measurement(name, signal, moments, n_examples)
        for name, signal in signals.items()
    }


def _measure_batch(
    model: Model,
    batch: Batch,
    signals: Mapping[str, Signal],
    moments: Mapping[tuple[str, Site], "_Moments"],
) -> None:
    fired: set[Site] = set()

    def reduce(site: Site) -> Callback:
        names = [name for name, place in moments if place == site]

        def callback(activation: Tensor) -> None:
            fired.add(site)
            for name in names:
                values = signals[name].function(activation, batch)
                if values.shape[:1] != batch.targets.shape:
                    raise BadInput(
                        f"signal {name} has shape {tuple(values.shape)}: its first axis"
                        f" must be the {len(batch.targets)} examples"
                    )
                moments[name, site].add(values)

        return callback

    places = {site for _, site in moments}
    with _attached(model, {site: reduce(site) for site in places}):
        forward(model, batch)
    _require_fired(places, fired)


def forward(model: Model, batch: Batch) -> None:
    """Run the model on a batch, for the hooks that are attached to it."""
    if batch.mask is None:
        model(batch.tokens)
    else:
        model(batch.tokens, batch.mask)


@dataclass
class _Moments:
    """Running mean and sum of squared deviations over examples (Welford; Chan)."""

    count: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros(()))
    squares: Tensor = field(default_factory=lambda: torch.zeros(()))

    def add(self, values: Tensor) -> None:
        values = values.double()
        n = values.shape[0]
        mean = values.mean(0)
        delta = mean - self.mean.to(mean.device)
        total = self.count + n
        within = (values - mean).square().sum(0)
        self.squares = (
            self.squares.to(mean.device)
            + within
            + delta.square() * (self.count * n / total)
        )
        self.mean = self.mean.to(mean.device) + delta * (n / total)
        self.count = total

    def statistics(self) -> Tensor:
        spread = self.squares / max(self.count - 1, 1)
        return torch.stack([self.mean, (spread / self.count).sqrt()]).cpu()


def _measurement(
    name: str,
    signal: Signal,
    moments: Mapping[tuple[str, Site], _Moments],
    n_examples: int,
) -> Measurement:
    sites = sorted(site for other, site in moments if other == name)
    values = torch.stack([moments[name, site].statistics() for site in sites], dim=1)
    return Measurement(
        values=values,
        axes=("statistic", "layer", *signal.axes),
        labels={
            "statistic": ("mean", "standard_error"),
            "layer": tuple(site.layer for site in sites),
        },
        name=name,
        unit=signal.unit,
        provenance={"site": signal.kind, "n_examples": n_examples},
    )


def _layers(model: Model, kind: Kind) -> Sequence[Site]:
    return [site for site in sites_of(model) if site.kind == kind] or [Site(kind)]


@contextmanager
def _attached(model: Model, callbacks: Mapping[Site, Callback]) -> Iterator[None]:
    """Hold one hook per site for the length of the block, and no longer."""
    module = module_of(model)
    backend = backend_of(module)
    with ExitStack() as stack:
        for site, callback in callbacks.items():
            stack.callback(backend.attach(module, site, callback).remove)
        yield


def module_of(model: Model) -> Any:
    """What a backend reaches into."""
    return model if isinstance(model, nn.Module) else model.module


def sites_of(model: Model) -> list[Site]:
    """Every site that the model has."""
    module = module_of(model)
    return backend_of(module).sites(module)


def readout_of(model: Model) -> Readout:
    """From the last residual to logits; `BadInput` if that is not known."""
    if isinstance(model, nn.Module):
        return backend_of(model).readout(model)
    return model.readout


def _require_fired(wanted: Iterable[Site], fired: Iterable[Site]) -> None:
    silent = [str(site) for site in wanted if site not in set(fired)]
    if silent:
        raise BadInput(f"no forward pass reached {', '.join(silent)}")
