"""What must hold between the sites of a model, whatever it computes.

A law compares two accounts of one thing, layer by layer, and says what it compared; a
silently wrong number is one that breaks a law. The laws here read what one pass showed;
those that edit are in `contract`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.backends import Backend, backend_of
from circuits.hooks import Model, attached, module_of, readout_of, sites_of
from circuits.sites import Kind, Site
from trained.errors import in_a_line

from .norms import exact

Tokens = Int[Tensor, "batch pos"]
Real = Bool[Tensor, "batch pos"]

NEAR = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Rounding that is let pass within a pass, as a share of a vector; else 1e-5."""

FAR = {torch.float16: 5e-2, torch.bfloat16: 2e-1}
"""Between two passes that compute in another order, layer upon layer; else 1e-4."""

State = Literal["right", "wrong", "refused", "absent"]


@dataclass(frozen=True)
class Compared:
    """Two accounts of one thing.

    Attributes:
        what: what to say if they differ.
        error: how much they differ, as a share; not a number is not equal.
        limit: how much they may.
    """

    what: str
    error: float
    limit: float

    @property
    def broken(self) -> bool:
        """Whether they differ."""
        return not self.error <= self.limit

    @property
    def excess(self) -> float:
        """The error in units of the limit."""
        share = self.error / max(self.limit, 1e-300)
        return math.inf if math.isnan(share) else share


@dataclass(frozen=True)
class Finding:
    """Whether a model keeps a law.

    Attributes:
        law: its name.
        state: "right"; "wrong"; "refused" if it could not be tried; "absent" if the
            model has nothing that the law is about.
        detail: what is wrong, or why it was not tried.
        error: the largest of all errors in units of its limit, as a share.
        limit: what that error may be.
        count: how many comparisons were made.
    """

    law: str
    state: State
    detail: str = ""
    error: float | None = None
    limit: float | None = None
    count: int = 0


def judged(law: str, compared: Iterable[Compared]) -> Finding:
    """Whether a law holds, by all that it compared."""
    try:
        found = list(compared)
    except Exception as error:
        # A model that is unlike the others may fail in any way.
        return Finding(law, "refused", in_a_line(error))
    if not found:
        return Finding(law, "absent")
    worst = max(found, key=lambda one: one.excess)
    broken = [one for one in found if one.broken]
    right = Finding(law, "right", "", worst.error, worst.limit, len(found))
    if not broken:
        return right
    first = broken[0]
    more = f", and {len(broken) - 1} more of {len(found)}" if len(broken) > 1 else ""
    said = f"{first.what} (off by {first.error:.2g}{more})"
    said = first.what if math.isinf(first.error) else said
    return replace(right, state="wrong", detail=said)


@dataclass(frozen=True, eq=False)
class Observed:
    """One pass over prompts, padded or not, seen at every site.

    Attributes:
        model: the model.
        tokens: the prompts.
        real: True at what is not padding.
        seen: every activation, in float32 or float64.
        dtype: the type that the model computes in.
    """

    model: Model
    tokens: Tokens
    real: Real
    seen: Mapping[Site, Tensor]
    dtype: torch.dtype

    @property
    def near(self) -> float:
        """Rounding within a pass."""
        return NEAR.get(self.dtype, 1e-5)

    @property
    def far(self) -> float:
        """Rounding between passes."""
        return FAR.get(self.dtype, 1e-4)

    @property
    def backend(self) -> Backend:
        """What reaches into the model."""
        return backend_of(module_of(self.model))

    @property
    def layers(self) -> range:
        """Of the model."""
        return range(1 + max((site.layer for site in self.seen), default=-1))

    def at(self, kind: Kind, layer: int = 0) -> Tensor | None:
        """What a site shows at real tokens; of a pattern [query, head, key]."""
        activation = self.seen.get(Site(kind, layer))
        if activation is None:
            return None
        if kind == "pattern":
            activation = rearrange(activation, "b head query key -> b query head key")
        # Models of one output position have no other.
        whole = activation.shape[1] == self.real.shape[1]
        return activation[self.real.to(activation.device)] if whole else activation

    def row(self, site: Site, row: int) -> Tensor:
        """What a site shows of one prompt alone."""
        activation = self.seen[site][row]
        places = self.real[row].to(activation.device)
        if site.kind == "pattern":
            return activation[:, places][..., places]
        return activation[places] if len(activation) == len(places) else activation


@torch.no_grad()
def observe(
    model: Model,
    tokens: Tokens,
    real: Real | None = None,
    sites: Iterable[Site] | None = None,
) -> Observed:
    """Run a model and keep what sites show, or all; silent ones are missing."""
    seen: dict[Site, Tensor] = {}

    def keep(site: Site, activation: Tensor) -> None:
        seen[site] = exact(activation)

    wanted = sites_of(model) if sites is None else sites
    with attached(model, {site: partial(keep, site) for site in wanted}):
        if real is None:
            model(tokens)
        else:
            model(tokens, real)
    whole = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
    # Not that of what was seen: a hook that rounds would excuse itself.
    weight = next(module_of(model).parameters(), torch.empty(0))
    return Observed(model, tokens, whole, seen, weight.dtype)


def share(found: Tensor, expected: Tensor) -> float:
    """|found - expected| / |expected|, of the place where that is largest."""
    if found.shape != expected.shape:
        return math.inf
    expected = exact(expected)
    # Vectors are all that lies at one place.
    expected = expected.reshape(len(expected) if expected.ndim > 1 else 1, -1)
    difference = (found.to(expected).reshape(expected.shape) - expected).norm(dim=-1)
    return (difference / expected.norm(dim=-1).clamp(min=1e-30)).max().item()


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, for probabilities."""
    if found.shape != expected.shape:
        return math.inf
    return (found.to(expected) - expected).abs().max().item()


# Laws of one pass


def fires(case: Observed) -> Iterator[Compared]:
    """Every site that the model lists is reached."""
    for site in sites_of(case.model):
        missing = math.inf if site not in case.seen else 0.0
        yield Compared(f"no forward pass reached {site}", missing, 0.0)


def rows(case: Observed) -> Iterator[Compared]:
    """Rows of patterns are probabilities, and 0 at what comes later and at padding."""
    for layer in case.layers:
        pattern = case.seen.get(Site("pattern", layer))
        if pattern is None:
            continue
        site = Site("pattern", layer)
        real, square = case.real.to(pattern.device), pattern.shape[2]
        at = case.at("pattern", layer)
        assert at is not None
        off = (at.sum(-1) - 1).abs().max().item()
        below = (-at).max().item()
        yield Compared(f"rows of {site} are not probabilities", off, case.near)
        yield Compared(f"{site} has entries below 0", below, 0.0)
        if square != real.shape[1]:
            continue
        causal = torch.ones(square, square, dtype=torch.bool, device=real.device).tril()
        hidden = ~(causal & real[:, None, :])
        seen = (pattern * hidden[:, None])[real[:, None].expand(pattern.shape[:3])]
        yield Compared(f"{site} looks at what it may not", seen.abs().max().item(), 0.0)


def residual(case: Observed) -> Iterator[Compared]:
    """resid_pre + attn_out + mlp_out = resid_post, of every block."""
    for layer in case.layers:
        before, attention = case.at("resid_pre", layer), case.at("attn_out", layer)
        middle, mlp = case.at("resid_mid", layer), case.at("mlp_out", layer)
        after = case.at("resid_post", layer)
        # Models of one output position drop the others on the way.
        if before is None or attention is None or before.shape != attention.shape:
            continue
        total = before + attention
        if middle is not None:
            what = f"resid_pre + attn_out is not resid_mid in block {layer}"
            yield Compared(what, share(total, middle), case.near)
        if after is not None and mlp is not None:
            what = f"resid_pre + attn_out + mlp_out is not resid_post in block {layer}"
            yield Compared(what, share(total + mlp, after), case.near)
        following = case.at("resid_pre", layer + 1)
        if after is not None and following is not None:
            what = f"resid_post[{layer}] is not resid_pre[{layer + 1}]"
            yield Compared(what, share(after, following), case.near)


def heads(case: Observed) -> Iterator[Compared]:
    """Heads sum to attn_out: with a bias, and through the norm that some have there."""
    module = module_of(case.model)
    for layer in case.layers:
        writing = case.backend.writing(module, layer)
        added, total = case.at("head_out", layer), case.at("attn_out", layer)
        if writing is not None and added is not None and total is not None:
            found = writing.attention(added[None].to(case.dtype))[0]
            what = f"the heads of block {layer} do not sum to attn_out"
            yield Compared(what, share(found, total), case.near)


def neurons(case: Observed) -> Iterator[Compared]:
    """mlp_act through the last layer of the MLP is mlp_out."""
    module = module_of(case.model)
    for layer in case.layers:
        writing = case.backend.writing(module, layer)
        held, total = case.at("mlp_act", layer), case.at("mlp_out", layer)
        if writing is None or writing.mlp is None or held is None or total is None:
            continue
        found = writing.mlp(held[None].to(case.dtype))[0]
        what = f"the neurons of block {layer} do not make mlp_out"
        yield Compared(what, share(found, total), case.near)


def mixing(case: Observed) -> Iterator[Compared]:
    """What heads look at, times what it holds, times W_O is head_out, head by head."""
    module = module_of(case.model)
    for layer in case.layers:
        pattern, value = (case.seen.get(Site(k, layer)) for k in ("pattern", "value"))
        added, writing = case.at("head_out", layer), case.backend.writing(module, layer)
        if pattern is None or value is None or added is None or writing is None:
            continue
        mixed = mix(pattern, value, writing.W_O)[case.real.to(pattern.device)]
        what = f"pattern x value x W_O is not head_out in block {layer}"
        yield Compared(what, share(mixed, added), case.near)


def mix(
    pattern: Float[Tensor, "batch head query key"],
    value: Float[Tensor, "batch key kv_head d_head"],
    weights: Float[Tensor, "head d_head d_model"],
) -> Float[Tensor, "batch query head d_model"]:
    """What heads add that look so and hold this."""
    group = pattern.shape[1] // value.shape[2]
    value = repeat(value, "b key kv d -> b key (kv group) d", group=group)
    held = einsum(pattern, value, "b head query key, b key head d -> b query head d")
    axes = "b query head d, head d d_model -> b query head d_model"
    return einsum(held, weights.to(held), axes)


def values(case: Observed) -> Iterator[Compared]:
    """The values are norm(resid_pre) W_V and a bias: `head_weights` knows the layer."""
    module = module_of(case.model)
    for layer in case.layers:
        before, value = case.at("resid_pre", layer), case.at("value", layer)
        known = case.backend.writing(module, layer) is not None
        if before is None or value is None or not known:
            continue
        weights = case.backend.head_weights(module, layer)
        normed = weights.norm(before.to(case.dtype)).to(before)
        axes = "n d_model, head d_model d_head -> n head d_head"
        found = einsum(normed, weights.W_V.to(normed), axes)
        group = found.shape[1] // value.shape[1]
        value = repeat(value, "n kv d -> n (kv group) d", group=group)
        # Without the bias, which is the same at every token.
        found, value = (x - x.mean(0) for x in (found, value))
        what = f"norm(resid_pre) W_V does not make the values of block {layer}"
        yield Compared(what, share(found, value), case.near)


def lens(case: Observed) -> Iterator[Compared]:
    """The lens at the last layer is the logits, all of them or those of some tokens."""
    last = Site("resid_post", case.layers[-1])
    readout, logits = readout_of(case.model), case.at("logits")
    states = case.at("resid_post", last.layer)
    if states is None or logits is None:
        return
    found = readout.logits(states)
    yield Compared(
        f"the lens at {last} is not the logits", share(found, logits), case.near
    )
    tokens = case.tokens[case.real][:, None].to(logits.device)
    found = readout.target_logits(states, tokens)
    error = (found - logits.gather(1, tokens)).abs().amax(1) / logits.abs().amax(1)
    what = f"the lens of single tokens at {last} is not the logits"
    yield Compared(what, error.max().item(), case.near)


def agrees(
    case: Observed, row: int, expected: Mapping[Site, Tensor], words: str
) -> Iterator[Compared]:
    """One prompt of a pass shows what another account of it says.

    Args:
        case: the pass.
        row: the prompt.
        expected: the other account.
        words: what to say of a site, with a blank for it.
    """
    # The logits first: they are what a reader knows.
    for site in sorted(expected, key=lambda site: site.kind != "logits"):
        if site not in case.seen:
            continue
        found, reference = case.row(site, row), expected[site]
        differ = apart if site.kind == "pattern" else share
        name = "the logits" if site.kind == "logits" else str(site)
        yield Compared(words.format(name), differ(found, reference), case.far)
