"""Observe and change a model: `record`, `intervene`, `measure`.

A hook that never fires would make an ablation look harmless; here it is an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from probes.measurement import Measurement
from trained.errors import BadInput
from trained.task import Batch

from . import hooked
from .sites import Kind, Site

Edit = Callable[[Tensor], Tensor]
"""activation -> the activation that takes its place, of the same shape."""


@contextmanager
def record(model: nn.Module, sites: Iterable[Site]) -> Iterator[dict[Site, Tensor]]:
    """Collect the activations at some sites of the last forward pass in the block.

    Inside `intervene` it sees the edited activation, around it the original one.
    Raises `BadInput` at the end of the block if a site never fired.
    """
    wanted = tuple(sites)
    activations: dict[Site, Tensor] = {}

    def keep(site: Site) -> hooked.Callback:
        def callback(activation: Tensor) -> None:
            activations[site] = activation.detach()

        return callback

    with _attached(model, {site: keep(site) for site in wanted}):
        yield activations
    _require_fired(wanted, activations)


@contextmanager
def intervene(model: nn.Module, edits: Mapping[Site, Edit]) -> Iterator[None]:
    """Replace activations in every forward pass of the block.

    Raises `BadInput` if an edit changes a shape, or if at the end of the block one
    was never applied. The hooks are removed on any way out.
    """
    fired: set[Site] = set()

    def replace(site: Site, edit: Edit) -> hooked.Callback:
        def callback(activation: Tensor) -> Tensor:
            fired.add(site)
            edited = edit(activation)
            if edited.shape != activation.shape:
                raise BadInput(
                    f"the edit at {site} changed the shape from "
                    f"{tuple(activation.shape)} to {tuple(edited.shape)}"
                )
            return edited

        return callback

    with _attached(model, {site: replace(site, e) for site, e in edits.items()}):
        yield
    _require_fired(edits, fired)


@dataclass(frozen=True)
class Signal:
    """A quantity per example, computed inside the hook at every layer of a kind.

    Attributes:
        kind: where the activation is taken.
        function: (activation, batch) -> values with the batch axis first.
        axes: names of the axes after the batch axis.
        unit: what the values are in.
    """

    kind: Kind
    function: Callable[[Tensor, Batch], Tensor]
    axes: tuple[str, ...] = ()
    unit: str = ""


@torch.no_grad()
def measure(
    model: nn.Module, batches: Iterable[Batch], signals: Mapping[str, Signal]
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
    model: nn.Module,
    batch: Batch,
    signals: Mapping[str, Signal],
    moments: Mapping[tuple[str, Site], "_Moments"],
) -> None:
    fired: set[Site] = set()

    def reduce(site: Site) -> hooked.Callback:
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
        model(batch.tokens)
    _require_fired(places, fired)


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


def _layers(model: nn.Module, kind: Kind) -> Sequence[Site]:
    sites = [site for site in hooked.sites(model) if site.kind == kind]
    return sites or [Site(kind)]


@contextmanager
def _attached(
    model: nn.Module, callbacks: Mapping[Site, hooked.Callback]
) -> Iterator[None]:
    """Hold one hook per site for the length of the block, and no longer."""
    with ExitStack() as stack:
        for site, callback in callbacks.items():
            stack.callback(hooked.attach(model, site, callback).remove)
        yield


def _require_fired(wanted: Iterable[Site], fired: Iterable[Site]) -> None:
    silent = [str(site) for site in wanted if site not in set(fired)]
    if silent:
        raise BadInput(f"no forward pass reached {', '.join(silent)}")
