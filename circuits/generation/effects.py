"""What a step does to what follows it: cut from later attention, or exchanged.

Every effect is told twice: how likely what had followed still is, word for word, and
what the model writes instead.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from circuits.hooks import Edit, reading, record
from circuits.inspection.observing import at_least_single, pattern_layers
from circuits.interventions.edit import acting, renormalised
from circuits.interventions.part import Part
from circuits.sites import Site
from probes.measurement import Measurement
from trained.errors import BadInput
from trained.task import Batch

from .chain import Chain
from .notes import ends_of
from .passes import Passes, greedy

Columns = Callable[[int], Int[Tensor, " column"]]
"""n -> the columns of the last n positions of a pass."""

Edits = Callable[[Columns], dict[Site, Edit]]


@dataclass(frozen=True)
class Effect:
    """What becomes of what followed a step.

    Attributes:
        before: log p of every token that had followed, in nats; axis ("token",).
        after: the same with the edit.
        text: what the model writes with the edit, in as many tokens at most.
    """

    before: Measurement
    after: Measurement
    text: str

    @property
    def lost(self) -> float:
        """Nats by which all that had followed is less likely now."""
        return float(self.before.values.sum() - self.after.values.sum())


def knocked_out(
    chain: Chain,
    step: int,
    since: int,
    layers: Sequence[int] | None,
    heads: tuple[int, ...] | None,
) -> Effect:
    """Without the edges from later tokens to a step; see `Chain.knock_out`."""
    keys = [chain.n_prompt + token for token in chain.step(step).tokens]
    if not step < since <= len(chain.steps):
        last = len(chain.steps)
        raise BadInput(f"no step {since} after step {step}: there are {last}")
    start = chain.step(since).tokens.start
    first = chain.n_prompt + start

    def edits(columns: Columns) -> dict[Site, Edit]:
        def edit(part: Part, pattern: Tensor) -> Tensor:
            queries, seen = (columns(n) for n in pattern.shape[-2:])
            inside = torch.isin(seen, seen.new_tensor(keys))
            cut = (queries >= first)[:, None] & inside & part.mask(chain.batch, pattern)
            return renormalised(pattern.masked_fill(cut, 0.0), pattern)

        chosen = pattern_layers(chain.model) if layers is None else layers
        parts = [Part("pattern", layer, heads) for layer in chosen]
        return {part.site: _bound(edit, part) for part in parts}

    return _effect(chain, start, edits)


def _bound(edit: Callable[[Part, Tensor], Tensor], part: Part) -> Edit:
    return lambda activation: edit(part, activation)


def exchanged(
    chain: Chain, step: int, donor: Chain, layer: int, role: str | None
) -> Effect:
    """With another chain's residual at a step; see `Chain.exchange`."""
    own, other = (_state_columns(c, step, role) for c in (chain, donor))
    if len(own) != len(other):
        raise BadInput(
            f"{role or 'state'} of step {step} has {len(own)} tokens here and "
            f"{len(other)} in the donor: it must have as many"
        )
    site, places = Site("resid_post", layer), donor.batch.tokens.new_tensor([other])
    nowhere = donor.batch.tokens[:, :0]
    with reading(chain.model, nowhere), record(chain.model, [site], places) as seen:
        chain.model(donor.batch.tokens)

    def edits(columns: Columns) -> dict[Site, Edit]:
        def edit(residual: Tensor) -> Tensor:
            here = columns(residual.shape[1])
            where = (here[:, None] == here.new_tensor(own)).nonzero()
            changed = residual.clone()
            changed[:, where[:, 0]] = seen[site][:, where[:, 1]].to(residual)
            return changed

        return {site: edit}

    return _effect(chain, chain.step(step).tokens.stop, edits)


def _state_columns(chain: Chain, step: int, role: str | None) -> list[int]:
    found = chain.step(step)
    if role is not None and role not in found.roles:
        raise BadInput(f"step {step}, {found.text!r}, has no {role}")
    tokens = found.tokens[-1:] if role is None else found.roles[role]
    return [chain.n_prompt + token for token in tokens]


@torch.no_grad()
def _effect(chain: Chain, start: int, edits: Edits) -> Effect:
    """What edits do to the tokens that were written from `start` on."""
    n_written = chain.batch.tokens.shape[1] - chain.n_prompt
    if n_written - start < 2:
        raise BadInput("fewer than two tokens follow: let the model write more")
    model, tokens = chain.model, chain.batch.tokens
    whole = Passes(model, chain.batch)
    before = _log_probs(chain, start, nullcontext())
    after = _log_probs(chain, start, acting(model, edits(whole.columns)))
    prefix = tokens[:, : chain.n_prompt + start]
    passes = Passes(model, Batch(prefix, chain.batch.targets))
    with acting(model, edits(passes.columns)):
        said = [int(token) for token in greedy(passes, n_written - start)]
    stops = [place for place, token in enumerate(said) if token in ends_of(model)]
    kept = said[: stops[0] + 1] if stops else said
    text = model.tokenizer.decode(kept, skip_special_tokens=True)
    return Effect(before, after, str(text))


def _log_probs(
    chain: Chain, start: int, editing: AbstractContextManager[None]
) -> Measurement:
    """How likely each token from `start` on is, given those before it; in one pass."""
    tokens, first = chain.batch.tokens, chain.n_prompt + start
    n_columns = tokens.shape[1]
    columns = torch.arange(first - 1, n_columns - 1, device=tokens.device)[None]
    with editing, reading(chain.model, columns) as unembedded:
        logits = unembedded.at(chain.model(tokens), columns)
    log_probs = at_least_single(logits).log_softmax(-1)
    values = log_probs.gather(-1, tokens[:, first:, None])[0, :, 0]
    return Measurement(values, ("token",), name="log p", unit="nats")
