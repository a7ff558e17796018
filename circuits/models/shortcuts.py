"""Laws of the fast ways: what is computed without a whole pattern or a whole pass.

Attention mass out of the layer's own kernel, single rows of a pattern, passes that
start in mid-model and branches of a stored run must give what the slow way gives.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from circuits.backends import backend_of
from circuits.backends.branches import Layout
from circuits.backends.view import View, at_columns
from circuits.hooks import module_of, reading, record
from circuits.sites import Site
from trained.interrupts import Holding

from .language_model import LanguageModel, sharing
from .laws import NEAR, Compared, Observed, Tokens, apart, mix, share

QUERIES = 4
"""Rows that are looked at beyond a window."""


@torch.no_grad()
def account(hf: Any, tokens: Tokens) -> Mapping[Site, Tensor]:
    """What transformers itself says of a prompt: eager attention, no mask, no hooks."""
    # transformers leaves hooks in a model that it has given an account of.
    other = sharing(hf)
    other.set_attn_implementation("eager")
    said = other(
        input_ids=tokens,
        output_attentions=True,
        output_hidden_states=True,
        use_cache=False,
    )
    # The last of the hidden states lies behind the final norm.
    *states, _ = said.hidden_states
    found = {Site("resid_pre", layer): state[0] for layer, state in enumerate(states)}
    for layer, state in enumerate(states[1:]):
        found[Site("resid_post", layer)] = state[0]
    for layer, pattern in enumerate(said.attentions):
        found[Site("pattern", layer)] = pattern[0]
    return {**found, Site("logits"): said.logits[0]}


def views(case: Observed) -> Iterator[Compared]:
    """Rows of some queries, and mass on sets of keys, are those of the pattern."""
    real, columns = case.real, _last(case)[:, None]
    first = torch.zeros_like(real).scatter(1, real.int().argmax(1)[:, None], True)
    chosen = {
        "rows": View(torch.cat([columns - 1, columns], 1)),
        "mass": View(None, torch.stack([first, real & ~first], 1)),
    }
    seen: dict[tuple[int, str], Tensor] = {}
    module = module_of(case.model)
    with Holding() as held:
        for layer in case.layers:
            for name, view in chosen.items():
                show = partial(seen.__setitem__, (layer, name))
                held.add(case.backend.attach_view, module, layer, view, show)
        case.model(case.tokens, real)
    for (layer, name), found in seen.items():
        expected = chosen[name].of(case.seen[Site("pattern", layer)])
        if name == "mass":
            found, expected = (x.transpose(1, 2)[real] for x in (found, expected))
        what = f"the {name} of pattern[{layer}] alone are not those of all of it"
        yield Compared(what, apart(found.float(), expected), case.near)


def resumed(case: Observed) -> Iterator[Compared]:
    """A pass from a residual in mid-model ends with the same logits."""
    resumption = case.backend.resumption(module_of(case.model))
    if resumption is None:
        return
    last = _last(case)
    expected = at_columns(case.seen[Site("logits")], last[:, None])[:, 0]
    for layer in _some(case):
        residual = case.seen[Site("resid_pre", layer)].to(case.dtype)
        with resumption.starting(residual, layer, last):
            found = case.model(torch.zeros_like(case.tokens), case.real)[:, 0]
        what = f"a pass from resid_pre[{layer}] has other logits"
        yield Compared(what, share(found, expected), case.far)


def branched(case: Observed) -> Iterator[Compared]:
    """A branch of a stored run ends with the same residual."""
    module = module_of(case.model)
    branching = case.backend.branching(module, case.tokens.shape[1])
    if branching is None:
        return
    run, last = branching.store(case.tokens, case.real), _last(case)
    layout, prompts = Layout(last, (1, 2)), torch.arange(len(last), device=last.device)
    final = case.seen[Site("resid_post", case.layers[-1])]
    expected = at_columns(final, last[:, None]).expand(-1, 2, -1)
    for layer in _some(case):
        before = case.seen[Site("resid_pre", layer)].to(case.dtype)
        residual = at_columns(before, layout.columns.clamp(min=0))
        blocks = range(layer, len(branching.blocks))
        found = run.branch(layout, residual, blocks, prompts)[:, layout.ends]
        what = f"a branch from block {layer} ends with another residual"
        yield Compared(
            what, share(found.flatten(0, 1), expected.flatten(0, 1)), case.far
        )


def beyond(model: LanguageModel, tokens: Tokens, window: int) -> Iterator[Compared]:
    """Behind a window, rows of the pattern still make what the attention adds."""
    queries = torch.arange(tokens.shape[1] - QUERIES, tokens.shape[1])[None]
    queries = queries.to(tokens.device)
    module, layers = model.module, range(model.n_layers)
    backend = backend_of(module)
    rows: dict[int, Tensor] = {}
    with (
        reading(model, queries),
        record(model, [Site("value", layer) for layer in layers]) as values,
        record(model, [Site("attn_out", n) for n in layers], queries) as added,
        Holding() as held,
    ):
        for layer in layers:
            show = partial(rows.__setitem__, layer)
            held.add(backend.attach_view, module, layer, View(queries), show)
        model(tokens)
    for layer, row in rows.items():
        writing, value = backend.writing(module, layer), values[Site("value", layer)]
        if writing is None:
            continue
        heads = mix(row.float(), value.float(), writing.W_O).to(value.dtype)
        expected = added[Site("attn_out", layer)].float()
        error = share(writing.attention(heads)[0], expected[0])
        what = f"beyond a window of {window}, pattern[{layer}] does not make attn_out"
        yield Compared(what, error, NEAR.get(value.dtype, 1e-5))


def _last(case: Observed) -> Tensor:
    """The column of every prompt's last token."""
    size = case.real.shape[1]
    return size - 1 - case.real.flip(1).int().argmax(1)


def _some(case: Observed) -> list[int]:
    """The first, the middle and the last layer."""
    last = case.layers[-1]
    return sorted({0, last // 2, last})
