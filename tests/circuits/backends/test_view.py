"""Rows and masses equal those of whole patterns, and nothing larger is worked out."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from circuits.backends import backend_of, hf, hf_attention
from circuits.backends.view import View
from circuits.hooks import Signal, intervene, measure, record
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from tests.random_models import N_LAYERS, letter_tokenizer, random_model
from trained.errors import BadInput
from trained.task import Batch

TEXTS = ("the cat sat", "a dog", "Hi there I")
ROLES = {"it": ["t", "d", "h"], "end": ["sat", "og", "I"]}


@cache
def opened(family: str, backend: Any = "hf", **options: Any) -> LanguageModel:
    model = random_model(family, **options)
    return pretrained.wrap(model, letter_tokenizer(), backend=backend)


def prompts(model: LanguageModel, side: Any) -> Batch:
    return model.prompts(TEXTS, roles=ROLES, side=side)


@torch.no_grad()
def seen_by(
    model: LanguageModel, batch: Batch, views: Mapping[str, View]
) -> tuple[dict[tuple[str, int], Tensor], Tensor]:
    """What each view shows of each layer, and the logits of that pass."""
    shown: dict[tuple[str, int], Tensor] = {}
    backend = backend_of(model.module)
    handles = [
        backend.attach_view(
            model.module,
            layer,
            view,
            lambda x, key=(name, layer): shown.update({key: x}),
        )
        for name, view in views.items()
        for layer in range(N_LAYERS)
    ]
    try:
        logits = model(batch.tokens, batch.mask)
    finally:
        for handle in handles:
            handle.remove()
            handle.remove()
    return shown, logits


@torch.no_grad()
def patterns(model: LanguageModel, batch: Batch) -> tuple[dict[Site, Tensor], Tensor]:
    sites = [Site("pattern", layer) for layer in range(N_LAYERS)]
    with record(model, sites) as seen:
        logits = model(batch.tokens, batch.mask)
    return seen, logits


def views_of(batch: Batch) -> dict[str, View]:
    sets = torch.zeros(3, 2, batch.tokens.shape[1], dtype=torch.bool)
    sets[:, 0].scatter_(1, batch.role("it"), True)
    sets[:, 1, ::2] = True
    both = torch.cat([batch.role("end"), batch.role("it")], 1)
    return {
        "rows": View(queries=both),
        "mass": View(sets=sets),
        "another mass": View(sets=~sets[:, :1]),
        "mass of rows": View(both, sets),
        "everything": View(),
    }


def by_hand(view: View, pattern: Tensor) -> Tensor:
    """One number at a time."""
    examples, heads, queries, keys = pattern.shape
    chosen = torch.arange(queries).expand(examples, -1)
    chosen = chosen if view.queries is None else view.queries
    every = torch.eye(keys, dtype=torch.bool).expand(examples, -1, -1)
    sets = every if view.sets is None else view.sets
    found = torch.zeros(examples, heads, chosen.shape[1], sets.shape[1])
    for b, h, q, s in torch.cartesian_prod(*map(torch.arange, found.shape)).tolist():
        found[b, h, q, s] = pattern[b, h, chosen[b, q], sets[b, s]].sum()
    return found


def test_views_by_hand() -> None:
    model = opened("gpt2")
    batch = prompts(model, "left")
    pattern = patterns(model, batch)[0][Site("pattern", 1)]
    for view in views_of(batch).values():
        torch.testing.assert_close(view.of(pattern), by_hand(view, pattern))


def check(model: LanguageModel, batch: Batch) -> None:
    views = views_of(batch)
    expected, plain = patterns(model, batch)
    shown, logits = seen_by(model, batch, views)
    for (name, layer), found in shown.items():
        wanted = views[name].of(expected[Site("pattern", layer)])
        assert found.shape == wanted.shape, name
        error = (found - wanted).abs().max().item()
        assert error <= 1e-5 * wanted.abs().max().item(), (name, layer, error)
    assert len(shown) == N_LAYERS * len(views)
    error = (logits - plain)[batch.mask].abs().max()
    assert error <= 1e-5 * plain[batch.mask].abs().max()


def test_every_family_shows_what_whole_patterns_say(family: str, side: str) -> None:
    """Soft caps (gemma2), windows (gemma2, gemma3, mistral) and grouped keys too."""
    model = opened(family)
    check(model, prompts(model, side))


@pytest.mark.parametrize("options", [{"attn_implementation": "eager"}, {}])
def test_every_kernel_shows_what_whole_patterns_say(
    options: dict[str, Any], side: str
) -> None:
    for family in ("gpt2", "llama"):
        model = opened(family, **options)
        check(model, prompts(model, side))


def test_unpadded_prompts_too(family: str) -> None:
    """Without a mask the kernel itself is causal."""
    model = opened(family)
    batch = model.prompts(["the cat sat", "a dog is it", "Hi there I "], roles=ROLES)
    assert bool(batch.mask.all())
    check(model, batch)


@pytest.mark.parametrize("backend", ["bridge", "nnsight"])
def test_other_backends_show_the_same(backend: str) -> None:
    model = opened("llama", backend)
    check(model, prompts(model, "left"))


# What is not worked out


def masses(**options: Any) -> dict[str, Signal]:
    return {"mass": Signal("pattern", lambda mass, _: mass, ("h", "q", "s"), **options)}


def test_masses_come_out_of_the_one_call_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    widths: list[int] = []
    fast = torch.nn.functional.scaled_dot_product_attention

    def counted(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        assert query.shape[-1] == key.shape[-1] == value.shape[-1]
        widths.append(query.shape[-1])
        return fast(query, key, value, **options)

    def refused(*_args: Any, **_options: Any) -> Tensor:
        raise AssertionError("a pattern was worked out")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    monkeypatch.setattr(hf_attention, "attention_pattern", refused)
    model = opened("llama")
    signals = masses(keys=("it", "end"))
    measure(model, [prompts(model, "left")], signals)
    # Heads of 8 and two sets, in steps of eight.
    assert widths == [16] * N_LAYERS


def test_a_row_never_builds_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    pattern = hf_attention.attention_pattern

    def counted(*args: Any, **options: Any) -> Tensor:
        found = pattern(*args, **options)
        shapes.append(tuple(found.shape))
        return found

    monkeypatch.setattr(hf_attention, "attention_pattern", counted)
    model = opened("llama")
    batch = prompts(model, "left")
    measure(model, [batch], masses(at="last"))
    measure(model, [batch], masses(at="last", keys=("it",)))
    assert shapes == [(3, 4, 1, batch.tokens.shape[1])] * (2 * N_LAYERS)


# With others


def test_a_view_sees_the_edited_pattern() -> None:
    model = opened("gpt2")
    batch = prompts(model, "right")

    def first_key(pattern: Tensor) -> Tensor:
        edited = torch.zeros_like(pattern)
        edited[..., 0] = 1.0
        return edited

    sets = torch.zeros(3, 1, batch.tokens.shape[1], dtype=torch.bool)
    sets[..., 0] = True
    with intervene(model, {Site("pattern", 1): first_key}):
        shown, logits = seen_by(model, batch, {"mass": View(sets=sets)})
        plain = model(batch.tokens, batch.mask)
    assert torch.equal(shown["mass", 1], torch.ones_like(shown["mass", 1]))
    assert not torch.equal(shown["mass", 0], torch.ones_like(shown["mass", 0]))
    torch.testing.assert_close(logits, plain)


def test_nothing_is_left_behind() -> None:
    model = opened("llama")
    batch = prompts(model, "left")
    with pytest.raises(ZeroDivisionError):
        measure(
            model, [batch], {"x": Signal("pattern", lambda *_: 1 / 0, keys=("it",))}
        )
    seen_by(model, batch, views_of(batch))
    assert not hf_attention._SEAMS
    assert all(
        module.config is model.module.config
        for module in model.module.modules()
        if hasattr(module, "config")
    )


def test_views_under_dropout_are_refused() -> None:
    model = random_model("gpt2").train()
    view = View(torch.zeros(2, 1).long())
    handle = hf.attach_view(model, 0, view, lambda _: None)
    with pytest.raises(BadInput, match=r"call model.eval\(\)"):
        model(torch.tensor([[5, 6, 7], [9, 8, 7]]))
    handle.remove()


def test_sets_of_other_prompts_are_refused() -> None:
    view = View(sets=torch.ones(2, 1, 5, dtype=torch.bool))
    with pytest.raises(BadInput, match="sets of 5 keys for a pattern of 4"):
        view.of(torch.ones(2, 3, 4, 4))
