"""What is particular to traces; that all backends agree is in test_agreement."""

from types import SimpleNamespace

import pytest
import torch

from circuits.backends import backend_of, nnsight
from circuits.hooks import intervene, record
from circuits.models import open as pretrained
from circuits.sites import Site
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput

TEXTS = ["abcdefg", "ab", "xyzw"]


@pytest.fixture(scope="module")
def traced():
    return pretrained.wrap(random_model("llama"), letter_tokenizer(), backend="nnsight")


@torch.no_grad()
def test_a_recording_inside_an_edit_sees_the_edited_activation(traced):
    prompts = traced.prompts(TEXTS)
    site = Site("head_out", 1)
    with (
        intervene(traced, {site: torch.zeros_like}),
        record(traced, [site]) as seen,
    ):
        traced(prompts.tokens, prompts.mask)

    assert not seen[site].any()


@torch.no_grad()
def test_an_identity_edit_everywhere_changes_nothing(traced):
    prompts = traced.prompts(TEXTS)
    before = traced(prompts.tokens, prompts.mask)
    sites = backend_of(traced.module).sites(traced.module)
    with intervene(traced, dict.fromkeys(sites, torch.clone)):
        after = traced(prompts.tokens, prompts.mask)

    torch.testing.assert_close(
        after[prompts.mask], before[prompts.mask], atol=1e-5, rtol=1e-5
    )


def test_gradients_flow_through_an_edit(traced):
    prompts = traced.prompts(TEXTS)
    shift = torch.zeros(traced.d_model, requires_grad=True)
    with intervene(traced, {Site("resid_post", 0): lambda residual: residual + shift}):
        logit = traced(prompts.tokens, prompts.mask)[0, -1, 3]
    (gradient,) = torch.autograd.grad(logit, shift)

    assert gradient.norm() > 0


@torch.no_grad()
def test_without_listeners_nothing_is_traced(traced, monkeypatch):
    prompts = traced.prompts(TEXTS)
    monkeypatch.setattr(traced.module.nnsight, "trace", None)
    assert traced(prompts.tokens, prompts.mask).shape[:2] == prompts.tokens.shape


@torch.no_grad()
def test_the_users_own_traces_still_work(traced):
    prompts = traced.prompts(TEXTS)
    site = Site("resid_post", 1)
    with record(traced, [site]) as seen:
        traced(prompts.tokens)
    view = traced.module.nnsight
    with view.trace(prompts.tokens):
        residual = view.model.layers[1].output.save()

    torch.testing.assert_close(residual, seen[site])


def test_an_error_in_a_callback_comes_out_and_leaves_nothing_behind(traced):
    prompts = traced.prompts(TEXTS)
    before = traced(prompts.tokens, prompts.mask)
    with (
        pytest.raises(BadInput, match=r"resid_pre\[1\] changed the shape"),
        intervene(traced, {Site("resid_pre", 1): lambda residual: residual[:1]}),
    ):
        traced(prompts.tokens, prompts.mask)

    assert traced.module.taps == {}
    torch.testing.assert_close(traced(prompts.tokens, prompts.mask), before)


def test_a_site_that_is_not_there_is_named(traced):
    with (
        pytest.raises(BadInput, match=r"unknown site 'pattern\[9\]'"),
        record(traced, [Site("pattern", 9)]),
    ):
        pass


@pytest.mark.parametrize(
    ("names", "find", "message"),
    [
        (("self_q_proj_0",), nnsight._attention_call, "no attention_interface"),
        (("torch_matmul_0",), nnsight._softmax, "0 softmax operations"),
        (("softmax_0", "softmax_1"), nnsight._softmax, "2 softmax operations"),
    ],
)
def test_attention_that_cannot_be_found_is_one_clear_error(names, find, message):
    with pytest.raises(BadInput, match=message):
        find(SimpleNamespace(names=names))
