"""Passes over prompts that grow token by token, and what the newest token shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from circuits.backends import backend_of
from circuits.backends.view import View
from circuits.hooks import attached, module_of, reading
from circuits.inspection.observing import (
    at_least_single,
    pattern_layers,
    stream_sites,
)
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from trained.errors import BadInput
from trained.interrupts import Holding
from trained.task import Batch


class Passes:
    """Prompts that are read, and go on.

    Where the library lets us, a pass reads new tokens alone, and keys and values of the
    earlier ones are kept; else it reads everything again.

    Attributes:
        tokens: all, the newest last.
        mask: True at real tokens.
    """

    def __init__(self, model: LanguageModel, prompts: Batch) -> None:
        if not bool(prompts.real[:, -1].all()):
            raise BadInput("prompts that go on are padded on the left: side='left'")
        self.tokens: Int[Tensor, "batch column"] = prompts.tokens
        self.mask: Bool[Tensor, "batch column"] = prompts.real
        self._n_read = 0
        self._model = model
        self._run = None if model.growing is None else model.growing()

    @property
    def length(self) -> int:
        """Columns so far."""
        return self.tokens.shape[1]

    @torch.no_grad()
    def logits(self) -> Float[Tensor, "batch d_vocab"]:
        """What the model says after the newest tokens."""
        if self._run is None:
            return self._model(self.tokens, self.mask)[:, -1]
        new = slice(self._n_read, self.length)
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)[:, new]
        self._n_read = self.length
        return self._run(self.tokens[:, new], self.mask, positions)[:, -1]

    def add(self, tokens: Int[Tensor, " batch"]) -> None:
        """Let a token follow every prompt."""
        self.tokens = torch.cat([self.tokens, tokens[:, None]], 1)
        self.mask = F.pad(self.mask, (0, 1), value=True)

    def columns(self, n: int) -> Int[Tensor, " column"]:
        """The columns of the newest `n` tokens."""
        device = self.tokens.device
        return torch.arange(self.length - n, self.length, device=device)


def greedy(passes: Passes, n_tokens: int) -> Iterator[Int[Tensor, " batch"]]:
    """The most likely tokens, one pass each; each is read before the next is chosen."""
    for number in range(n_tokens):
        best = passes.logits().max(-1)
        if bool(best.values.isnan().any()):
            raise BadInput("the model's logits are not numbers: it cannot go on")
        yield best.indices
        if number + 1 < n_tokens:
            passes.add(best.indices)


@dataclass(frozen=True)
class Sight:
    """What the last pass showed of the newest token.

    Attributes:
        rows: by layer, its attention; of a layer with a window, to the last keys alone.
        states: by site, its residual.
    """

    rows: dict[int, Float[Tensor, "batch head _"]] = field(default_factory=dict)
    states: dict[Site, Float[Tensor, "batch d_model"]] = field(default_factory=dict)

    def mass(
        self, spans: Bool[Tensor, "batch span column"]
    ) -> Float[Tensor, "layer batch head span"]:
        """The newest token's attention on each span: sum over k in span of A[k]."""
        n = spans.shape[-1]
        rows = [row.to(spans.device) for row in self.rows.values()]
        if any(row.shape[-1] < n for row in rows):
            rows = [F.pad(row, (n - row.shape[-1], 0)) for row in rows]
        whole = torch.stack(rows)
        return whole @ spans.mT.to(whole.dtype)

    def stream(self) -> Float[Tensor, "layer batch d_model"]:
        """The residual before the first layer and after each."""
        first, *_ = self.states.values()
        return torch.stack([state.to(first.device) for state in self.states.values()])


@contextmanager
def watching(
    model: LanguageModel, n_prompts: int, *, rows: bool, states: bool
) -> Iterator[Sight]:
    """See what the newest token of every pass in the block shows.

    Nothing but its own logits is unembedded.

    Args:
        model: the model.
        n_prompts: how many it reads at a time.
        rows: whether its attention is seen.
        states: whether its residuals are.
    """
    sight, module = Sight(), module_of(model)
    backend = backend_of(module)
    newest = torch.full((n_prompts, 1), -1, device=model.device)
    sites = stream_sites(model) if states else ()
    callbacks = {site: partial(_keep_state, sight, site) for site in sites}
    with reading(model, newest), attached(model, callbacks), Holding() as held:
        for layer in pattern_layers(model) if rows else ():
            show = partial(_keep_row, sight, layer)
            held.add(backend.attach_view, module, layer, View(newest), show)
        yield sight


def _keep_state(sight: Sight, site: Site, residual: Tensor) -> None:
    sight.states[site] = at_least_single(residual[:, -1])


def _keep_row(sight: Sight, layer: int, rows: Tensor) -> None:
    sight.rows[layer] = at_least_single(rows[:, :, -1])
