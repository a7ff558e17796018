"""Plain transformers models: what is left as it was, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from circuits.backends import hf, hf_attention
from circuits.hooks import intervene, record
from circuits.sites import Site
from tests.random_models import N_LAYERS, random_model
from trained.errors import BadInput

TOKENS = torch.tensor([[5, 6, 7, 8, 9], [9, 8, 7, 3, 4]])


@pytest.fixture(scope="module")
def llama() -> Any:
    return random_model("llama")


def n_hooks(model: Any) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks)
        for module in model.modules()
    )


def assert_untouched(model: Any) -> None:
    assert n_hooks(model) == 0
    assert not hf._TAPS
    assert not hf_attention._SEAMS
    for module in model.modules():
        if hasattr(module, "config"):
            assert module.config is model.config


# Fast attention stays on


@torch.no_grad()
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_observing_every_site_changes_no_bit(implementation: str) -> None:
    model = random_model("llama", attn_implementation=implementation)
    plain = model(TOKENS).logits
    with record(model, hf.sites(model)):
        observed = model(TOKENS).logits
    assert torch.equal(observed, plain)
    assert model.config._attn_implementation == implementation


@torch.no_grad()
def test_only_an_edited_layer_leaves_fast_attention(
    llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    fast = torch.nn.functional.scaled_dot_product_attention

    def counted(*args: Any, **options: Any) -> Tensor:
        calls.append(1)
        return fast(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    with intervene(llama, {Site("pattern", 1): torch.clone}):
        llama(TOKENS)
    assert len(calls) == N_LAYERS - 1
    calls.clear()
    with intervene(llama, {Site("value", 1): torch.clone}):
        llama(TOKENS)
    assert len(calls) == N_LAYERS


@torch.no_grad()
def test_patterns_are_seen_while_text_is_generated(llama: Any) -> None:
    prompt = TOKENS[:1]
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    plain = llama.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
    with record(llama, [Site("pattern", 2)]) as seen:
        shown = llama.generate(
            prompt, attention_mask=torch.ones_like(prompt), **options
        )
    assert torch.equal(shown, plain)
    # The last step has one query and every key before it.
    pattern = seen[Site("pattern", 2)]
    assert pattern.shape == (1, 4, 1, plain.shape[1] - 1)
    assert (pattern > 0).all()
    torch.testing.assert_close(pattern.sum(-1), torch.ones(1, 4, 1))


# Ways out


def test_nothing_is_left_behind(llama: Any) -> None:
    with record(llama, hf.sites(llama)), intervene(llama, {Site("pattern"): torch.neg}):
        assert n_hooks(llama) > 0
        llama(TOKENS)
    assert_untouched(llama)


def test_nothing_is_left_behind_by_an_exception(llama: Any) -> None:
    def fail(_activation: Tensor) -> Tensor:
        raise ZeroDivisionError

    plain = llama(TOKENS).logits
    for site in [site for site in hf.sites(llama) if site.layer in (0, 1)]:
        edits = {Site("resid_mid", 0): torch.neg, Site("value", 2): torch.neg}
        with (
            pytest.raises(ZeroDivisionError),
            record(llama, hf.sites(llama)),
            intervene(llama, {**edits, site: fail}),
        ):
            llama(TOKENS)
        assert_untouched(llama)
    assert torch.equal(llama(TOKENS).logits, plain)


def test_callbacks_may_end_in_any_order_and_more_than_once(llama: Any) -> None:
    site, calls = Site("pattern", 1), []
    first = hf.attach(llama, site, lambda _pattern: calls.append("first"))
    second = hf.attach(llama, site, lambda _pattern: calls.append("second"))
    other = hf.attach(llama, Site("value", 1), lambda _value: calls.append("value"))
    first.remove()
    first.remove()
    llama(TOKENS)
    assert calls == ["value", "second"]
    second.remove()
    llama(TOKENS)
    assert calls == ["value", "second", "value"]
    other.remove()
    assert_untouched(llama)


def test_a_hook_of_the_users_own_survives(llama: Any) -> None:
    calls: list[str] = []
    block = llama.model.layers[1]
    own = block.register_forward_hook(lambda *_: calls.append("own"))
    with intervene(llama, {Site("resid_post", 1): torch.neg}):
        llama(TOKENS)
    llama(TOKENS)
    own.remove()
    assert calls == ["own", "own"]


def test_gradients_flow_through_every_edit(llama: Any) -> None:
    for site in [site for site in hf.sites(llama) if site.layer in (0, N_LAYERS - 1)]:
        factor = torch.ones((), requires_grad=True)

        def edit(activation: Tensor, factor: Tensor = factor) -> Tensor:
            source = torch.Generator().manual_seed(0)
            noise = torch.randn(activation.shape, generator=source)
            return activation + (factor - 1) * noise * (activation != 0)

        with intervene(llama, {site: edit}):
            loss = llama(TOKENS).logits.log_softmax(-1)[:, -1, 3].sum()
        (gradient,) = torch.autograd.grad(loss, factor)
        assert gradient.abs() > 1e-5, site


# What is refused


@pytest.mark.parametrize("site", [Site("pattern", N_LAYERS), Site("mlp_out", -1)])
def test_a_layer_that_does_not_exist_is_refused(llama: Any, site: Site) -> None:
    with pytest.raises(
        BadInput, match=r"unknown site .* choose from: resid_pre\[0..2\]"
    ):
        hf.attach(llama, site, torch.neg)
    assert_untouched(llama)


def test_a_parallel_block_has_no_residual_between_its_halves() -> None:
    with pytest.raises(BadInput, match=r"unknown site 'resid_mid\[0\]'"):
        hf.attach(random_model("neox"), Site("resid_mid"), torch.neg)


def test_patterns_under_dropout_are_refused() -> None:
    model = random_model("gpt2").train()
    with (
        pytest.raises(BadInput, match=r"call model.eval\(\)"),
        record(model, [Site("pattern")]),
    ):
        model(TOKENS)
    assert_untouched(model)


def test_logits_of_a_plain_tuple_are_refused(llama: Any) -> None:
    with (
        pytest.raises(BadInput, match="return_dict=True"),
        record(llama, [Site("logits")]),
    ):
        llama(TOKENS, return_dict=False)


# attention_pattern


def pattern_of(
    scores: list[list[float]], mask: Tensor | None, **options: Any
) -> Tensor:
    """The pattern of one head whose scores are given: the keys are unit vectors."""
    query = torch.tensor(scores)[None, None]
    key = torch.eye(query.shape[-1])[None, None]
    found = hf_attention.attention_pattern(query, key, mask, scaling=1.0, **options)
    return found[0, 0]


LOG2, LOG3 = torch.tensor([2.0, 3.0]).log().tolist()


def test_a_pattern_worked_by_hand() -> None:
    found = pattern_of([[0.0, 9.0], [0.0, LOG3]], None)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [0.25, 0.75]]))


@pytest.mark.parametrize("kind", ["boolean", "added"])
def test_masked_keys_get_nothing_and_a_row_without_keys_is_zero(kind: str) -> None:
    seen = torch.tensor([[False, False], [True, False]])[None, None]
    lowest = torch.finfo(torch.float32).min
    mask = seen if kind == "boolean" else torch.zeros(seen.shape).where(seen, lowest)
    found = pattern_of([[1.0, 2.0], [0.0, 5.0]], mask)
    assert torch.equal(found, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))


def test_a_bias_in_the_mask_is_added_to_the_scores() -> None:
    mask = torch.tensor([[0.0, 0.0], [0.0, LOG2]])[None, None]
    found = pattern_of([[0.0, 0.0], [0.0, 0.0]], mask)
    torch.testing.assert_close(found[1], torch.tensor([1 / 3, 2 / 3]))


def test_a_soft_cap_bounds_the_scores() -> None:
    mask = torch.ones(1, 1, 1, 2, dtype=torch.bool)
    capped = pattern_of([[1e6, -1e6]], mask, soft_cap=LOG2 / 2)
    torch.testing.assert_close(capped, torch.tensor([[2 / 3, 1 / 3]]))
    loose = pattern_of([[LOG2, 0.0]], mask, soft_cap=1e4)
    torch.testing.assert_close(loose, torch.tensor([[2 / 3, 1 / 3]]))


def test_heads_of_a_group_share_a_key() -> None:
    query, key = torch.randn(1, 4, 3, 2), torch.randn(1, 2, 3, 2)
    found = hf_attention.attention_pattern(query, key, None, scaling=1.0)
    for head in range(4):
        own = hf_attention.attention_pattern(
            query[:, [head]], key[:, [head // 2]], None, scaling=1.0
        )
        torch.testing.assert_close(found[:, [head]], own)


def test_the_mask_of_another_kernel_is_refused() -> None:
    with pytest.raises(BadInput, match='attn_implementation="sdpa"'):
        pattern_of([[0.0, 0.0]], torch.ones(1, 2, dtype=torch.bool))
