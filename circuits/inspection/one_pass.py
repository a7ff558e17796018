"""One prompt, one pass: its residual stream, and some rows of every pattern.

A view of a prompt shows at most `MOST_SHOWN` of its positions; what is kept beside them
grows with the length of the prompt, never with its square or with the vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.backends.view import View
from circuits.models.language_model import LanguageModel
from trained.errors import BadInput
from trained.task import Batch

from .encoding import Item, Tokens
from .observing import Look, at_least_single, observe, stream_sites
from .packing import pack, teachings

SHOWN = 32
"""Positions of a longer prompt that are shown if none are named."""

MOST_SHOWN = 256

QUERIES_AT_ONCE = 64
"""Whole rows of a pattern that are held at a time."""


@dataclass(frozen=True, eq=False)
class Pass:
    """What a pass over a prompt, and all but the end of its answer, showed.

    Attributes:
        model: the model.
        item: the prompt.
        shown: the positions that are shown.
        stream: the residuals before the first layer and after each, as the model has
            them.
        rows: the last token's and the roles' attention on all keys; None if patterns
            were not asked for.
        blocks: of every head, the attention among the shown positions.
        layers: the layers that have patterns.
    """

    model: LanguageModel
    item: Item
    shown: Tokens
    stream: tuple[Float[Tensor, "pos d_model"], ...]
    rows: Float[Tensor, "layer head query key"] | None = None
    blocks: Float[Tensor, "layer head shown shown"] | None = None
    layers: tuple[int, ...] = ()

    def at(self, positions: Sequence[int]) -> Float[Tensor, "layer place d_model"]:
        """The residuals at some positions, in single precision at least."""
        index = torch.tensor(positions, device=self.model.device)
        return torch.stack([at_least_single(states[index]) for states in self.stream])

    @property
    def prompt(self) -> Batch:
        """The prompt, its roles and, where there is an answer, its first token."""
        return batch_of(self.model, self.item)


def batch_of(model: LanguageModel, item: Item) -> Batch:
    """A prompt in tokens as a batch of its own."""
    batch = pack(model, [item.tokens]).batch
    target = item.answers[0][0] if item.answers else -1
    roles = {
        name: torch.tensor([places], device=model.device)
        for name, places in item.roles.items()
    }
    return Batch(batch.tokens, torch.full_like(batch.targets, target), None, roles)


def queries_of(item: Item) -> dict[str, int]:
    """Who looks: the last token, and the last token of every role."""
    return {"last": item.last} | {name: own[-1] for name, own in item.roles.items()}


def shown_positions(item: Item, chosen: Sequence[int] | None = None) -> Tokens:
    """The positions that are shown, in order.

    Those that are chosen; else all, and of a prompt that is longer than `SHOWN` those
    of the roles and the last ones.
    """
    if chosen is not None:
        if len(chosen) > MOST_SHOWN:
            raise BadInput(
                f"--positions names {len(chosen)} tokens; give at most {MOST_SHOWN}"
            )
        return tuple(sorted({*chosen, item.last}))
    length = len(item.tokens)
    roles = {place for own in item.roles.values() for place in own[-SHOWN // 4 :]}
    most = max(SHOWN - len(roles), SHOWN // 4)
    return tuple(sorted({*roles, *range(max(length - most, 0), length)}))


@torch.no_grad()
def pass_over(
    model: LanguageModel, item: Item, shown: Tokens, *, patterns: bool
) -> Pass:
    """Run a prompt once, followed by all but the last token of its first answer.

    Args:
        model: the model.
        item: the prompt.
        shown: the positions that are shown.
        patterns: whether attention is looked at.
    """
    first, *_ = teachings([item], answers=True)
    batch, sites = pack(model, [first.tokens]).batch, stream_sites(model)
    seen = observe(model, batch, sites, None, _looks(model, item, shown, patterns))
    stream = tuple(seen.states[site][0].to(model.device) for site in sites)
    if not patterns or not seen.views["rows"]:
        return Pass(model, item, shown, stream)
    views = {name: torch.stack([*own.values()]) for name, own in seen.views.items()}
    rows, *blocks = views.values()
    layers = tuple(seen.views["rows"])
    return Pass(model, item, shown, stream, rows, torch.cat(blocks, 2), layers)


def _looks(
    model: LanguageModel, item: Item, shown: Tokens, patterns: bool
) -> dict[str, Look]:
    if not patterns:
        return {}
    length, keys = len(item.tokens), torch.tensor(shown)
    queries = torch.tensor([list(queries_of(item).values())], device=model.device)
    looks = {"rows": Look(View(queries), lambda rows: rows[0, :, :, :length].cpu())}
    for some in torch.split(keys, QUERIES_AT_ONCE):
        view = View(some[None].to(model.device))
        name = f"from {int(some[0])}"
        looks[name] = Look(view, lambda rows: rows[0].cpu()[..., keys])
    return looks
