"""Signals say what they read, and nobody unembeds what nobody reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from circuits.hooks import Signal, intervene, measure, reading, record
from circuits.interventions.passes import activations, answer_logits
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.sites import Site
from tests.ground_truth import Decoder
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput
from trained.task import Batch


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return pretrained.wrap(random_model("llama"), letter_tokenizer())


@pytest.fixture
def batch(model: LanguageModel) -> Batch:
    return model.prompts(["the cat", "a dog is"], roles={"it": ["c", "d"]})


def given(value: Tensor, _batch: Batch) -> Tensor:
    return value


def mean(model: Any, batch: Batch, signal: Signal) -> Tensor:
    return measure(model, [batch], {"x": signal})["x"].values[0]


@contextmanager
def unembedded(model: LanguageModel) -> Iterator[list[int]]:
    """How many positions each pass unembeds."""
    found: list[int] = []
    own = model.module.lm_head.forward

    def counted(states: Tensor) -> Tensor:
        found.append(states.shape[1])
        return own(states)

    model.module.lm_head.forward = counted
    try:
        yield found
    finally:
        del model.module.lm_head.forward


@torch.no_grad()
def test_signals_get_the_positions_that_they_ask_for(
    model: LanguageModel, batch: Batch
) -> None:
    sites = [Site("logits"), Site("resid_post", 1)]
    with record(model, sites) as seen:
        model(batch.tokens, batch.mask)
    rows, columns = torch.arange(2)[:, None], batch.role("it")
    for site in sites:
        signal = Signal(site.kind, given, ("place", "width"), at="it")
        expected = seen[site][rows, columns].mean(0)
        found = mean(model, batch, signal)[site.layer]
        torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-5)
        asked = Signal(site.kind, given, ("place", "width"), at=lambda b: b.role("it"))
        assert torch.equal(mean(model, batch, asked)[site.layer], found)


def test_measure_unembeds_only_what_is_read(model: LanguageModel, batch: Batch) -> None:
    length = batch.tokens.shape[1]
    axes = ("place", "width")
    residual = Signal("resid_post", given, axes)
    last = Signal("logits", given, axes, at="last")
    there = Signal("logits", given, axes, at="it")
    whole = Signal("logits", given, axes)
    cases = [
        ({"a": residual}, 0),
        ({"a": residual, "b": last}, 1),
        ({"a": last, "b": there}, 2),
        ({"a": last, "b": whole}, length),
    ]
    for signals, expected in cases:
        with unembedded(model) as counts:
            measure(model, [batch], signals)
        assert counts == [expected]
    alone = mean(model, batch, there)
    both = measure(model, [batch], {"a": last, "b": there})["b"].values[0]
    torch.testing.assert_close(both, alone, rtol=1e-5, atol=1e-5)


def test_passes_unembed_only_what_is_read(model: LanguageModel, batch: Batch) -> None:
    with unembedded(model) as counts:
        activations(model, batch, [Site("resid_pre", 1)])
        answer_logits(model, batch, "it")
        activations(model, batch, [Site("logits")])
    assert counts == [0, 1, batch.tokens.shape[1]]


@torch.no_grad()
def test_who_listens_to_the_logits_gets_all_of_them(
    model: LanguageModel, batch: Batch
) -> None:
    """An edit around the pass, or a hook of the user's own."""
    shape = (2, batch.tokens.shape[1], 40)
    seen: list[tuple[int, ...]] = []

    def edit(logits: Tensor) -> Tensor:
        seen.append(tuple(logits.shape))
        return -logits

    plain = answer_logits(model, batch, "it")
    with intervene(model, {Site("logits"): edit}):
        torch.testing.assert_close(answer_logits(model, batch, "it"), -plain)
        measure(model, [batch], {"x": Signal("resid_post", given, ("p", "d"))})
    own = model.module.lm_head.register_forward_hook(
        lambda _module, _inputs, output: seen.append(tuple(output.shape))
    )
    torch.testing.assert_close(answer_logits(model, batch, "it"), plain)
    own.remove()
    assert seen == [shape] * 3


@torch.no_grad()
def test_the_model_is_whole_again_behind_the_block(
    model: LanguageModel, batch: Batch
) -> None:
    with reading(model, batch.role("last")):
        assert model(batch.tokens, batch.mask).shape[1] == 1
    with pytest.raises(ZeroDivisionError), reading(model, batch.role("last")):
        1 / 0  # noqa: B018
    assert model(batch.tokens, batch.mask).shape[1] == batch.tokens.shape[1]


@torch.no_grad()
def test_only_some_columns_are_kept(model: LanguageModel, batch: Batch) -> None:
    sites = [Site("head_out", 1), Site("resid_pre", 2)]
    whole = activations(model, batch, sites)
    kept = activations(model, batch, sites, batch.role("it"))
    rows = torch.arange(2)[:, None]
    for site in sites:
        torch.testing.assert_close(kept[site], whole[site][rows, batch.role("it")])
        assert kept[site].untyped_storage().nbytes() == kept[site].numel() * 4


@torch.no_grad()
def test_small_models_read_the_same_way(tiny_decoder: Decoder) -> None:
    tokens = torch.randint(11, (3, 4), generator=torch.Generator().manual_seed(0))
    roles = {"some": torch.tensor([[0, 2], [1, 3], [2, 0]])}
    batch = Batch(tokens, tokens[:, 0], roles=roles)
    with record(tiny_decoder, [Site("pattern", 1), Site("logits")]) as seen:
        tiny_decoder(tokens)
    pattern, logits = seen[Site("pattern", 1)], seen[Site("logits")]
    rows = torch.arange(3)[:, None]
    some = Signal("pattern", given, ("h", "q", "k"), at="some")
    expected = pattern[rows, :, roles["some"]].transpose(1, 2).mean(0).double()
    torch.testing.assert_close(mean(tiny_decoder, batch, some)[1], expected)
    mass = Signal("pattern", given, ("h", "q", "s"), at="last", keys=("some",))
    own = [pattern[b, :, -1, keys].sum(-1) for b, keys in enumerate(roles["some"])]
    expected = torch.stack(own).mean(0).double()
    torch.testing.assert_close(mean(tiny_decoder, batch, mass)[1, :, 0, 0], expected)
    said = Signal("logits", given, ("p", "v"), at="last")
    expected = logits[:, -1:].mean(0).double()
    torch.testing.assert_close(mean(tiny_decoder, batch, said)[0], expected)


def test_only_a_pattern_has_keys() -> None:
    with pytest.raises(BadInput, match="resid_post has no keys"):
        Signal("resid_post", given, keys=("last",))
