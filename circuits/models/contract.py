"""The laws that a model must keep before a number taken from it can be trusted.

Hooks that silently do nothing, patterns that were never computed and padding that
shifts positions are the usual ways in which such numbers go wrong. `check_model` finds
them in a few forward passes on two short prompts.
"""

from collections.abc import Sequence
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.hooks import Edit, Model, intervene, record, sites_of
from circuits.sites import Site
from trained.errors import BadInput

from .language_model import LanguageModel, Side

SIZE = (2, 4)
"""Prompts and tokens of a check: the least that shows every law broken."""

TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Rounding that is let pass, as a share of the largest logit; 1e-4 otherwise."""

NOTICEABLE = 1e-5
"""Least effect of an edit, as a share of the largest logit."""

Tokens = Int[Tensor, "batch pos"]


@torch.no_grad()
def check_model(model: Model, tokens: Tokens | None = None) -> None:
    """Raise `BadInput` with the law and the site if a model breaks one.

    At the first and the last layer of every kind of site:

    1. rows of attention patterns are probabilities;
    2. two passes agree, and observing one changes nothing;
    3. putting an activation back where it came from changes nothing;
    4. an edit at any site changes the logits;

    and of a `LanguageModel`, whose readout and padding are known,

    5. the last layer's lens is the logits;
    6. a batch padded on either side has the numbers of single prompts.

    Args:
        model: what to check.
        tokens: prompts to check it on; only a `LanguageModel` can do without.
    """
    if tokens is None:
        tokens = _random_tokens(model)
    sites = _first_and_last(sites_of(model))
    plain = _logits(model, tokens)
    with record(model, sites) as seen:
        observed = _logits(model, tokens)
    _require_equal(plain, observed, "two passes differ; call model.eval()")
    for site in sites:
        if site.kind == "pattern":
            _check_rows(seen[site], site)
    _check_identity(model, tokens, sites, plain)
    _check_edits(model, tokens[:1], sites)
    if isinstance(model, LanguageModel):
        last = Site("resid_post", model.n_layers - 1)
        lens = model.readout.logits(seen[last])
        _require_equal(plain, lens, f"the lens at {last} is not the logits")
        _check_padding(model, tokens)


def _logits(model: Model, tokens: Tokens) -> Tensor:
    output = model(tokens)
    return getattr(output, "logits", output)


def _random_tokens(model: Model) -> Tokens:
    if not isinstance(model, LanguageModel):
        raise BadInput(f"check_model needs tokens for a {type(model).__name__}")
    source = torch.Generator().manual_seed(0)
    return torch.randint(model.d_vocab, SIZE, generator=source).to(model.device)


def _first_and_last(sites: Sequence[Site]) -> list[Site]:
    ends: dict[str, set[int]] = {}
    for kind in {site.kind for site in sites}:
        layers = [site.layer for site in sites if site.kind == kind]
        ends[kind] = {min(layers), max(layers)}
    return [site for site in sites if site.layer in ends[site.kind]]


def _check_rows(pattern: Float[Tensor, "batch head query key"], site: Site) -> None:
    smallest = pattern.min().item()
    error = (pattern.sum(-1) - 1).abs().max().item()
    if not (smallest >= 0 and error <= _tolerance(pattern)):
        raise BadInput(
            f"rows of {site} are not probabilities: smallest entry {smallest:.3g}, "
            f"sums off by {error:.3g}"
        )


def _check_identity(
    model: Model, tokens: Tokens, sites: Sequence[Site], plain: Tensor
) -> None:
    """All sites in one pass; one by one only to find the guilty."""

    def changes(places: Sequence[Site]) -> bool:
        with intervene(model, dict.fromkeys(places, torch.clone)):
            return not _close(_logits(model, tokens), plain)

    if changes(sites):
        guilty = [site for site in sites if changes([site])] or sites
        names = ", ".join(str(site) for site in guilty)
        raise BadInput(f"an identity patch at {names} changes the logits")


def _check_edits(model: Model, prompt: Tokens, sites: Sequence[Site]) -> None:
    """One pass over copies of a prompt: one for each site, and two left alone."""
    rows = prompt.repeat(len(sites) + 2, 1)
    edits = {site: _noise_in(row) for row, site in enumerate(sites)}
    with intervene(model, edits):
        logits = _logits(model, rows)
    *edited, alone, control = logits
    plain = _logits(model, prompt)[0]
    _require_equal(plain, control, "an edit of one prompt changes another's logits")
    noticeable = NOTICEABLE * plain.abs().max().item() + _distance(alone, control)
    for site, row in zip(sites, edited, strict=True):
        if not _distance(row, control) > noticeable:
            raise BadInput(f"an edit at {site} does not change the logits")


def _noise_in(row: int) -> Edit:
    """Adds noise as large as the activation itself to one example of a batch."""

    def edit(activation: Tensor) -> Tensor:
        source = torch.Generator().manual_seed(row)
        own = activation[row]
        noise = torch.randn(own.shape, generator=source).to(own)
        edited = activation.clone()
        edited[row] = own + noise * (own.float().std().item() or 1.0)
        return edited

    return edit


def _check_padding(model: LanguageModel, tokens: Tokens) -> None:
    """The first half of a prompt, alone and beside a whole one."""
    whole, size = tokens[:1], tokens.shape[1]
    half = whole[:, : size // 2]
    alone = model(half)[0]
    for side in get_args(Side):
        places = (
            slice(size - half.shape[1], size) if side == "left" else slice(size // 2)
        )
        batch = whole.repeat(2, 1)
        batch[1, places] = half[0]
        mask = torch.ones_like(batch, dtype=torch.bool)
        mask[1] = False
        mask[1, places] = True
        padded = model(batch, mask)[1, places]
        _require_equal(alone, padded, f"padding on the {side} changes the logits")


def _require_equal(expected: Tensor, found: Tensor, law: str) -> None:
    if not _close(expected, found):
        raise BadInput(f"{law} (off by {_distance(expected, found):.3g})")


def _close(one: Tensor, other: Tensor) -> bool:
    # Not a number is not close to anything.
    return _distance(one, other) <= _tolerance(one) * one.abs().max().item()


def _distance(one: Tensor, other: Tensor) -> float:
    return (one - other).abs().max().item()


def _tolerance(values: Tensor) -> float:
    return TOLERANCE.get(values.dtype, 1e-4)
