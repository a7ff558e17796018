"""Into a transformers attention layer, between its projections.

transformers hands queries (after rotation), keys and values to a function that it looks
up by name in the layer's configuration. A layer that somebody listens to gets a copy of
that configuration with our name in it; every other layer, and the mask that the model
builds, stay as they were. The layer's own kernel (SDPA, usually) still computes the
output unless the pattern was edited, and a whole pattern is worked out only where one
is asked for: who wants the rows of some queries gets these alone, and who wants the
mass on sets of keys gets it out of the layer's one call of its kernel, which mixes the
sets' indicators as it mixes values. That is exact for every kernel, with soft caps,
windows and grouped keys, and needs no memory that grows with the square of the length.
"""

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from trained.errors import BadInput

from .tap import Tap
from .view import View, rows_at

NAME = "reasonscope"

KERNEL_STEP = 8
"""Fast kernels take heads whose width is a multiple of this, alike for q, k and v."""

SHORT = (torch.float16, torch.bfloat16)

ROWS_AT_ONCE = 256
"""Queries whose rows are held at a time where mass is not left to the kernel."""

Place = Literal["pattern", "value"]

Query = Float[Tensor, "batch head query d_head"]
Key = Float[Tensor, "batch kv_head key d_head"]
Mixed = Float[Tensor, "batch query head d_head"]


@dataclass
class _Seam:
    """Who listens to one attention layer, and the configuration it came with."""

    config: Any
    taps: dict[Place, Tap] = field(default_factory=dict)
    viewers: list["Viewer"] = field(default_factory=list)


_SEAMS: dict[nn.Module, _Seam] = {}


@dataclass(frozen=True)
class Opening:
    """A tap at an attention layer; removing the last one gives the layer back."""

    attention: nn.Module
    place: Place

    def remove(self) -> None:
        """Stop feeding the tap."""
        del _SEAMS[self.attention].taps[self.place]
        _close(self.attention)


@dataclass(frozen=True, eq=False)
class Viewer:
    """Somebody who looks at less than the pattern of an attention layer."""

    attention: nn.Module
    view: View
    show: Callable[[Tensor], None]

    def remove(self) -> None:
        """Stop showing the view; a second time does nothing."""
        seam = _SEAMS.get(self.attention)
        if seam is not None and self in seam.viewers:
            seam.viewers.remove(self)
            _close(self.attention)


def open_attention(attention: nn.Module, place: Place, tap: Tap) -> Opening:
    """Feed a tap with the pattern or the values of an attention layer."""
    _seam(attention).taps[place] = tap
    return Opening(attention, place)


def view_attention(
    attention: nn.Module, view: View, show: Callable[[Tensor], None]
) -> Viewer:
    """Show what a view asks of the pattern of an attention layer."""
    viewer = Viewer(attention, view, show)
    _seam(attention).viewers.append(viewer)
    return viewer


def _seam(attention: nn.Module) -> _Seam:
    """The seam of a layer, which from now on calls us."""
    if attention not in _SEAMS:
        own: Any = attention.config
        _SEAMS[attention] = _Seam(own)
        ours = copy.copy(own)
        ours._attn_implementation = NAME
        attention.config = ours
    return _SEAMS[attention]


def _close(attention: nn.Module) -> None:
    """Give a layer back that nobody listens to."""
    seam = _SEAMS[attention]
    if not seam.taps and not seam.viewers:
        attention.config = seam.config
        del _SEAMS[attention]


def _attend(
    module: nn.Module,
    query: Query,
    key: Key,
    value: Key,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Mixed, Tensor | None]:
    """What transformers calls in place of a layer's own attention function."""
    seam = _SEAMS[module]
    if "value" in seam.taps:
        value = _edited_value(seam.taps["value"], value)
    if options.get("dropout") and (seam.viewers or "pattern" in seam.taps):
        raise BadInput("patterns are seen without dropout only: call model.eval()")
    call = _Call(module, seam, query, key, attention_mask, options)
    return call.tapped(value) if "pattern" in seam.taps else call.viewed(value)


@dataclass(frozen=True)
class _Call:
    """One call of a layer's attention, but for its values."""

    module: nn.Module
    seam: _Seam
    query: Query
    key: Key
    mask: Tensor | None
    options: dict[str, Any]

    def own(self, query: Query, key: Key, value: Key) -> tuple[Mixed, Tensor | None]:
        """What the layer would have called without us."""
        eager = sys.modules[type(self.module).__module__].eager_attention_forward
        name = self.seam.config._attn_implementation
        function = ALL_ATTENTION_FUNCTIONS.get_interface(name, eager)
        return function(self.module, query, key, value, self.mask, **self.options)

    def pattern(self, query: Query, mask: Tensor | None) -> Tensor:
        scaling, soft_cap = self.options["scaling"], self.options.get("softcap")
        return attention_pattern(
            query, self.key, mask, scaling=scaling, soft_cap=soft_cap
        )

    def tapped(self, value: Key) -> tuple[Mixed, Tensor | None]:
        """With a whole pattern, which may be edited."""
        pattern = self.pattern(self.query, self.mask)
        edited = self.seam.taps["pattern"](pattern)
        for viewer in tuple(self.seam.viewers):
            viewer.show(viewer.view.of(pattern if edited is None else edited))
        if edited is not None:
            own = edited.to(value.dtype)
            return _mix(own, value), own
        return self.own(self.query, self.key, value)

    def viewed(self, value: Key) -> tuple[Mixed, Tensor | None]:
        """With as much of the pattern as the views ask for."""
        everywhere: list[tuple[Viewer, Bool[Tensor, "batch set key"]]] = []
        for viewer in tuple(self.seam.viewers):
            view = viewer.view
            if view.queries is not None or view.sets is None:
                viewer.show(view.summed(self.rows(view.queries)))
            elif value.dtype in SHORT:
                viewer.show(self.mass_in_single(view.sets))
            else:
                everywhere.append((viewer, view.sets))
        if not everywhere:
            return self.own(self.query, self.key, value)
        sets = torch.cat([sets for _, sets in everywhere], 1)
        mixed, mass = self.with_mass(value, sets)
        sizes = [sets.shape[1] for _, sets in everywhere]
        parts = torch.split(mass, sizes, -1)
        for (viewer, _), part in zip(everywhere, parts, strict=True):
            viewer.show(part)
        return mixed, None

    def rows(self, queries: Int[Tensor, "batch chosen"] | None) -> Tensor:
        """The pattern's rows of some queries."""
        n_queries, n_keys = self.query.shape[2], self.key.shape[2]
        if queries is None or n_queries == 1:
            return self.pattern(self.query, self.mask)
        queries = queries % n_queries
        if self.mask is None:
            mask = _causal(queries, n_queries, n_keys)[:, None]
        else:
            _require_axes(self.mask)
            mask = rows_at(self.mask.expand(len(queries), -1, -1, -1), queries)
        return self.pattern(rows_at(self.query, queries), mask)

    def mass_in_single(
        self, sets: Bool[Tensor, "batch set key"]
    ) -> Float[Tensor, "batch head query set"]:
        """The mass on sets of keys for every query, some rows at a time.

        The kernel would round what it mixes to the model's short type.
        """
        n_prompts, n_queries = len(self.query), self.query.shape[2]
        every = torch.arange(n_queries, device=self.query.device)
        parts = [
            View(None, sets).summed(self.rows(some.expand(n_prompts, -1)))
            for some in torch.split(every, ROWS_AT_ONCE)
        ]
        return torch.cat(parts, 2)

    def with_mass(
        self, value: Key, sets: Bool[Tensor, "batch set key"]
    ) -> tuple[Mixed, Float[Tensor, "batch head query set"]]:
        """The output, and the mass on sets of keys for every query.

        A V = [A v, A 1_S] for V = [v, 1_S]. Zeros behind queries and keys leave their
        products as they are.
        """
        width, n_sets = value.shape[-1], sets.shape[1]
        padding = -(width + n_sets) % KERNEL_STEP
        key, query = (F.pad(x, (0, n_sets + padding)) for x in (self.key, self.query))
        columns = rearrange(sets, "batch set key -> batch 1 key set").to(value.dtype)
        shared = F.pad(columns, (0, padding)).expand(-1, value.shape[1], -1, -1)
        both, _ = self.own(query, key, torch.cat([value, shared], -1))
        mass = both[..., width : width + n_sets].transpose(1, 2)
        if self.mask is not None and self.mask.dtype != torch.bool:
            # Rows of padding see nothing; eager attention spreads them evenly.
            lowest = torch.finfo(self.mask.dtype).min
            mass = mass * (self.mask > lowest).any(-1, keepdim=True)
        return both[..., :width].contiguous(), mass


def _edited_value(
    tap: Tap, value: Float[Tensor, "batch kv_head pos d_head"]
) -> Float[Tensor, "batch kv_head pos d_head"]:
    edited = tap(
        rearrange(value, "batch kv_head pos d_head -> batch pos kv_head d_head")
    )
    if edited is None:
        return value
    return rearrange(edited, "batch pos kv_head d_head -> batch kv_head pos d_head")


def attention_pattern(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    mask: Tensor | None,
    *,
    scaling: float,
    soft_cap: float | None = None,
) -> Float[Tensor, "batch head query key"]:
    """softmax(cap(q k^T scaling) + mask) over the keys that a query may see.

    cap(s) = c tanh(s / c), Gemma 2's. Rows of queries that may see no key (padding)
    are zero. In single precision at least, whatever the model's.

    Args:
        query: queries, after rotation.
        key: keys, after rotation; each serves head / kv_head query heads in a row.
        mask: what transformers built for the layer: none (causal), or four axes,
            either True at what may be seen or added to the scores.
        scaling: factor of the scores.
        soft_cap: c; none for no cap.
    """
    # Short types would round scores and weights.
    query, key = (
        x.to(torch.promote_types(x.dtype, torch.float32)) for x in (query, key)
    )
    key = _for_each_head(key, query.shape[1])
    scores = einsum(query, key, "b head query d, b head key d -> b head query key")
    scores = scores * scaling
    if soft_cap is not None:
        scores = soft_cap * (scores / soft_cap).tanh()
    seen, added = _read_mask(mask, scores)
    scores = (scores + added).masked_fill(~seen, torch.finfo(torch.float32).min)
    return scores.softmax(-1) * seen


def _read_mask(
    mask: Tensor | None, scores: Float[Tensor, "batch head query key"]
) -> tuple[Bool[Tensor, "..."], Tensor | float]:
    """What may be seen, and what is added to the scores there."""
    if mask is None:
        queries, keys = scores.shape[-2:]
        return _causal(torch.arange(queries, device=scores.device), queries, keys), 0.0
    _require_axes(mask)
    if mask.dtype == torch.bool:
        return mask, 0.0
    return mask > torch.finfo(mask.dtype).min, mask


def _require_axes(mask: Tensor) -> None:
    if mask.ndim != 4:
        raise BadInput(
            "attention patterns need the mask of sdpa or eager attention; load the "
            'model with attn_implementation="sdpa"'
        )


def _causal(
    queries: Int[Tensor, "*batch query"], n_queries: int, n_keys: int
) -> Bool[Tensor, "*batch query key"]:
    """What some queries may see without a mask."""
    keys = torch.arange(n_keys, device=queries.device)
    # The queries are the last ones of the keys' positions.
    return keys <= queries[..., None] + (n_keys - n_queries)


def _mix(
    pattern: Float[Tensor, "batch head query key"],
    value: Float[Tensor, "batch kv_head key d_head"],
) -> Float[Tensor, "batch query head d_head"]:
    value = _for_each_head(value, pattern.shape[1])
    mixed = einsum(pattern, value, "b head query key, b head key d -> b query head d")
    return mixed.contiguous()


def _for_each_head(
    shared: Float[Tensor, "batch kv_head key d_head"], n_heads: int
) -> Float[Tensor, "batch head key d_head"]:
    """Keys or values of grouped-query attention, repeated for every query head."""
    group = n_heads // shared.shape[1]
    return repeat(shared, "b kv_head key d -> b (kv_head group) key d", group=group)


AttentionInterface.register(NAME, _attend)
