"""Observe and change a model: `record`, `intervene`, `measure`.

A hook that never fires would make an ablation look harmless; here it is an error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn

from probes.measurement import Measurement
from trained.errors import BadInput
from trained.interrupts import Holding
from trained.task import Batch

from .backends import Callback, backend_of
from .backends.anatomy import Readout
from .backends.view import Unembedded, View, at_columns
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
def record(
    model: Model,
    sites: Iterable[Site],
    columns: Int[Tensor, "batch place"] | None = None,
) -> Iterator[dict[Site, Tensor]]:
    """Collect the activations at some sites of the last forward pass in the block.

    Inside `intervene` it sees the edited activation, around it the original one.
    Raises `BadInput` at the end of the block if a site never fired.

    Args:
        model: the model.
        sites: where; with columns, those whose second axis are positions.
        columns: nothing else of the activations is kept, prompt by prompt; None: all.
    """
    wanted = tuple(sites)
    activations: dict[Site, Tensor] = {}
    callbacks = {site: partial(_keep, activations, columns, site) for site in wanted}
    with attached(model, callbacks):
        yield activations
    _require_fired(wanted, activations)


def _keep(
    activations: dict[Site, Tensor],
    columns: Tensor | None,
    site: Site,
    activation: Tensor,
) -> None:
    # Models of one output position have no other.
    if columns is not None and activation.shape[1] > 1:
        activation = at_columns(activation, columns)
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
    with attached(model, callbacks):
        yield
    _require_fired(edits, fired)


def _replace(fired: set[Site], site: Site, edit: Edit, activation: Tensor) -> Tensor:
    fired.add(site)
    return applied(site, edit, activation)


def applied(site: Site, edit: Edit, activation: Tensor) -> Tensor:
    """What an edit makes of an activation; `BadInput` if it changes the shape."""
    edited = edit(activation)
    if edited.shape != activation.shape:
        raise BadInput(
            f"the edit at {site} changed the shape from "
            f"{tuple(activation.shape)} to {tuple(edited.shape)}"
        )
    return edited


Where = str | Callable[[Batch], Int[Tensor, "batch place"]]
"""A role ("last" is each prompt's last token), or the columns, prompt by prompt."""


@dataclass(frozen=True)
class Signal:
    """A quantity per example, computed inside the hook at every layer of a kind.

    A signal that says what it reads costs no more than that: no whole pattern is worked
    out for some rows or for the mass on some keys, and positions whose logits nobody
    reads are not unembedded.

    Attributes:
        kind: where the activation is taken.
        function: (activation, batch) -> values with the batch axis first; the batch
            is what `measure` was given.
        axes: names of the axes after the batch axis.
        unit: what the values are in.
        at: the positions whose activations the function gets, in their order; of a
            pattern its queries: [batch, head, query, key]. None for all.
        keys: of a pattern, sets of keys: the function gets the attention mass on each,
            [batch, head, query, set], in place of the keys' weights.
    """

    kind: Kind
    function: Callable[[Tensor, Any], Tensor]
    axes: tuple[str, ...] = ()
    unit: str = ""
    at: Where | None = None
    keys: tuple[Where, ...] | None = None

    def __post_init__(self) -> None:
        if self.keys is not None and self.kind != "pattern":
            raise BadInput(f"{self.kind} has no keys: only a pattern has")

    def view(self, batch: Batch) -> View | None:
        """What it asks of a pattern; None for all of it."""
        if self.kind != "pattern" or (self.at is None and self.keys is None):
            return None
        queries = None if self.at is None else columns_of(self.at, batch)
        return View(
            queries, None if self.keys is None else self._sets(batch, self.keys)
        )

    @staticmethod
    def _sets(batch: Batch, keys: tuple[Where, ...]) -> Tensor:
        empty = torch.zeros_like(batch.tokens, dtype=torch.bool)
        chosen = [empty.scatter(1, columns_of(where, batch), True) for where in keys]
        return torch.stack(chosen, 1)


def columns_of(where: Where, batch: Batch) -> Int[Tensor, "batch place"]:
    """The columns of a role, or those that a function gives."""
    return batch.role(where) if isinstance(where, str) else where(batch)


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

    def fold(name: str, site: Site, activation: Tensor) -> None:
        fired.add(site)
        values = signals[name].function(activation, batch)
        if values.shape[:1] != batch.targets.shape:
            raise BadInput(
                f"signal {name} has shape {tuple(values.shape)}: its first axis"
                f" must be the {len(batch.targets)} examples"
            )
        moments[name, site].add(values)

    module = module_of(model)
    backend = backend_of(module)
    with reading(model, _read(signals, batch)) as unembedded, Holding() as held:
        for name, site in moments:
            signal, show = signals[name], partial(fold, name, site)
            view = signal.view(batch)
            if view is not None:
                held.add(backend.attach_view, module, site.layer, view, show)
            else:
                see = partial(_show_part, signal, batch, unembedded, show)
                held.add(backend.attach, module, site, see)
        forward(model, batch)
    _require_fired({site for _, site in moments}, fired)


def _show_part(
    signal: Signal,
    batch: Batch,
    unembedded: Unembedded,
    show: Callable[[Tensor], None],
    activation: Tensor,
) -> None:
    """Hand a signal the positions that it reads of an activation."""
    # Models of one output position have no other.
    if signal.at is not None and activation.shape[1] > 1:
        wanted = columns_of(signal.at, batch)
        own = signal.kind == "logits"
        at = unembedded.at if own else at_columns
        activation = at(activation, wanted)
    show(activation)


@contextmanager
def reading(
    model: Model, columns: Int[Tensor, "batch place"] | None
) -> Iterator[Unembedded]:
    """Let passes in the block unembed the columns that are read, where that is known.

    All are unembedded if somebody else listens to the logits, and by models that give
    no way in before their unembedding.
    """
    module = module_of(model)
    last = None if columns is None else backend_of(module).unembedding(module)
    if last is None or columns is None:
        yield Unembedded()
        return

    def narrow(_module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        return at_columns(inputs[0], columns)

    with Holding() as held:
        held.add(last.register_forward_pre_hook, narrow)
        yield Unembedded(columns)


def _read(
    signals: Mapping[str, Signal], batch: Batch
) -> Int[Tensor, "batch place"] | None:
    """The columns whose logits some signal reads; None for all."""
    nowhere = batch.tokens[:, :0]
    columns = [nowhere]
    for signal in signals.values():
        if signal.kind == "logits":
            if signal.at is None:
                return None
            columns.append(columns_of(signal.at, batch))
    return torch.cat(columns, 1)


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
def attached(model: Model, callbacks: Mapping[Site, Callback]) -> Iterator[None]:
    """Hold one hook per site for the length of the block, and no longer."""
    module = module_of(model)
    backend = backend_of(module)
    with Holding() as held:
        for site, callback in callbacks.items():
            held.add(backend.attach, module, site, callback)
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
