"""Observing and changing models whose circuit is known."""

import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from circuits.backends import hooked
from circuits.hooks import Edit, Signal, intervene, measure, record
from circuits.sites import KINDS, Site, hooked_name
from tests.ground_truth import Decoder, GroundTruth, accuracy
from trained.errors import BadInput
from trained.recall.model import RecallModel, constructed_model
from trained.recall.task import relation_table
from trained.task import Batch

ABSENT_FROM_RECALL = ("value", "head_out")


@pytest.fixture(params=["copy_head", "two_hop", "uninformed"])
def truth(request: pytest.FixtureRequest) -> GroundTruth:
    return request.getfixturevalue(request.param)


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(11, (5, 4), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def recall() -> tuple[RecallModel, Tensor]:
    """The recall study's model, with prompts of two examples."""
    model = constructed_model(relation_table("affine", 4, 12, 0), 2, 0)
    d_vocab = model.W_E.shape[0]
    source = torch.Generator().manual_seed(0)
    return model, torch.randint(d_vocab, (3, 6), generator=source)


def n_hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


def without_head(head: int) -> Edit:
    """Sets what a head adds to the residual to zero."""

    def edit(head_out: Tensor) -> Tensor:
        head_out = head_out.clone()
        head_out[:, :, head] = 0.0
        return head_out

    return edit


# record


def test_record_gives_what_transformer_lens_caches(
    tiny_decoder: Decoder, tokens: Tensor
) -> None:
    sites = hooked.sites(tiny_decoder)
    logits, cache = tiny_decoder.run_with_cache(tokens)
    with record(tiny_decoder, sites) as activations:
        assert torch.equal(tiny_decoder(tokens), logits)
    assert set(activations) == set(sites)
    for site in sites:
        assert torch.equal(activations[site], cache[hooked_name(site)])
        assert not activations[site].requires_grad


def test_record_gives_the_shapes_that_the_sites_promise(copy_head: GroundTruth) -> None:
    sites = [Site(k) for k in ("pattern", "head_out", "resid_post", "logits")]
    with record(copy_head.model, sites) as seen:
        copy_head.model(copy_head.tokens)
    d_model = copy_head.model.config.d_model
    assert [tuple(seen[site].shape) for site in sites] == [
        (32, 2, 4, 4),
        (32, 4, 2, d_model),
        (32, 4, d_model),
        (32, 4, 8),
    ]


def test_record_keeps_the_last_of_several_passes(tiny_decoder: Decoder) -> None:
    with record(tiny_decoder, [Site("logits")]) as seen:
        tiny_decoder(torch.zeros(1, 2, dtype=torch.int64))
        last = tiny_decoder(torch.ones(3, 4, dtype=torch.int64))
    assert torch.equal(seen[Site("logits")], last)


def test_the_wired_head_is_seen_to_attend_where_it_was_wired(
    truth: GroundTruth,
) -> None:
    sites = [Site("pattern", layer) for layer in range(truth.model.config.n_layers)]
    with record(truth.model, sites) as seen:
        truth.model(truth.tokens)
    for wired in truth.circuit:
        pattern = seen[Site("pattern", wired.layer)]
        assert (pattern[:, wired.head, wired.query, wired.key] > 0.999).all()
    for layer, head in truth.idle:
        last = seen[Site("pattern", layer)][:, head, -1]
        torch.testing.assert_close(last, torch.full_like(last, 1 / last.shape[-1]))


def test_run_with_cache_works_on_the_recall_model(
    recall: tuple[RecallModel, Tensor],
) -> None:
    model, prompts = recall
    logits, cache = model.run_with_cache(prompts)
    sites = [Site(kind) for kind in KINDS if kind not in ABSENT_FROM_RECALL]
    with record(model, sites) as seen:
        assert torch.equal(model(prompts), logits)
    for site in sites:
        assert torch.equal(seen[site], cache[hooked_name(site)])
    pattern = cache[hooked_name(Site("pattern"))]
    torch.testing.assert_close(pattern.sum(-1), torch.ones(3, 1, 1))


def test_run_with_hooks_works_on_our_models(
    tiny_decoder: Decoder, tokens: Tensor
) -> None:
    name = hooked_name(Site("pattern", 1))
    silence = [(name, lambda pattern, hook: torch.zeros_like(pattern))]  # noqa: ARG005
    edited = tiny_decoder.run_with_hooks(tokens, fwd_hooks=silence)
    with intervene(tiny_decoder, {Site("pattern", 1): torch.zeros_like}):
        assert torch.equal(tiny_decoder(tokens), edited)
    assert not torch.equal(tiny_decoder(tokens), edited)


# intervene


@pytest.mark.parametrize("kind", KINDS)
def test_an_identity_edit_changes_nothing(
    tiny_decoder: Decoder, tokens: Tensor, kind: Any
) -> None:
    site = Site(kind, 0 if kind == "logits" else 1)
    with torch.no_grad():
        plain = tiny_decoder(tokens)
        with intervene(tiny_decoder, {site: lambda activation: activation}):
            edited = tiny_decoder(tokens)
    if kind == "head_out":
        # Heads are summed one by one when somebody listens: another rounding.
        torch.testing.assert_close(edited, plain)
    else:
        assert torch.equal(edited, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_anywhere_changes_the_logits(
    tiny_decoder: Decoder, tokens: Tensor, kind: Any
) -> None:
    plain = tiny_decoder(tokens)
    with intervene(tiny_decoder, {Site(kind): lambda activation: activation * 1.5}):
        edited = tiny_decoder(tokens)
    assert (edited - plain).abs().max() > 1e-3


def test_each_wired_head_is_needed(truth: GroundTruth) -> None:
    n_answers = len(truth.targets.unique())
    for wired in truth.circuit:
        edits = {Site("head_out", wired.layer): without_head(wired.head)}
        with intervene(truth.model, edits):
            broken = accuracy(truth, truth.model(truth.tokens))
        # All answers tie without it: the first one is named.
        assert broken <= 2 / n_answers
    if truth.circuit:
        assert accuracy(truth, truth.model(truth.tokens)) == 1.0


def test_idle_heads_do_not_matter(truth: GroundTruth) -> None:
    plain = truth.model(truth.tokens)
    assert truth.idle
    for layer, head in truth.idle:
        with intervene(truth.model, {Site("head_out", layer): without_head(head)}):
            edited = truth.model(truth.tokens)
        torch.testing.assert_close(edited, plain)


def test_no_ablation_changes_an_uninformed_model(uninformed: GroundTruth) -> None:
    plain = uninformed.model(uninformed.tokens)
    chance = 1 / len(uninformed.targets)
    assert accuracy(uninformed, plain) == pytest.approx(chance)
    for kind in ("pattern", "attn_out"):
        for layer in range(2):
            with intervene(uninformed.model, {Site(kind, layer): torch.zeros_like}):
                edited = uninformed.model(uninformed.tokens)
            torch.testing.assert_close(edited, plain)


def test_a_patched_bridge_carries_the_other_answer(two_hop: GroundTruth) -> None:
    site = Site("resid_post", 0)
    with record(two_hop.model, [site]) as seen:
        two_hop.model(two_hop.tokens)
    source = seen[site].roll(1, dims=0)

    def patch(position: int) -> Edit:
        def edit(residual: Tensor) -> Tensor:
            residual = residual.clone()
            residual[:, position] = source[:, position]
            return residual

        return edit

    answers = {}
    for position in (0, 1):
        with intervene(two_hop.model, {site: patch(position)}):
            answers[position] = two_hop.model(two_hop.tokens)[:, -1].argmax(-1)
    assert torch.equal(answers[1], two_hop.targets.roll(1))
    assert torch.equal(answers[0], two_hop.targets)


def test_a_record_inside_an_intervention_sees_the_edit(
    tiny_decoder: Decoder, tokens: Tensor
) -> None:
    site = Site("resid_pre", 1)
    with (
        intervene(tiny_decoder, {site: torch.zeros_like}),
        record(tiny_decoder, [site]) as seen,
    ):
        tiny_decoder(tokens)
    assert not seen[site].any()


# Ways out


def test_no_hook_is_left_behind(tiny_decoder: Decoder, tokens: Tensor) -> None:
    before = n_hooks(tiny_decoder)
    sites = hooked.sites(tiny_decoder)
    with record(tiny_decoder, sites), intervene(tiny_decoder, {sites[0]: torch.neg}):
        assert n_hooks(tiny_decoder) == before + len(sites) + 1
        tiny_decoder(tokens)
    assert n_hooks(tiny_decoder) == before


def test_hooks_are_gone_after_an_exception(
    tiny_decoder: Decoder, tokens: Tensor
) -> None:
    plain, before = tiny_decoder(tokens), n_hooks(tiny_decoder)
    edits = {Site("resid_pre"): torch.zeros_like, Site("logits"): torch.zeros_like}
    with pytest.raises(ZeroDivisionError), intervene(tiny_decoder, edits):
        1 / 0  # noqa: B018
    with pytest.raises(ZeroDivisionError), record(tiny_decoder, edits):
        1 / 0  # noqa: B018
    assert n_hooks(tiny_decoder) == before
    assert torch.equal(tiny_decoder(tokens), plain)


def test_hooks_are_gone_if_one_of_the_sites_does_not_exist(
    tiny_decoder: Decoder,
) -> None:
    before = n_hooks(tiny_decoder)
    sites = [Site("resid_pre"), Site("pattern", 2)]
    with pytest.raises(BadInput), record(tiny_decoder, sites):
        pass
    assert n_hooks(tiny_decoder) == before


def test_the_users_own_hooks_survive(tiny_decoder: Decoder, tokens: Tensor) -> None:
    calls: list[str] = []
    name = hooked_name(Site("resid_pre"))
    tiny_decoder.add_hook(name, lambda _value, hook: calls.append(hook.name))
    with intervene(tiny_decoder, {Site("resid_pre"): torch.zeros_like}):
        tiny_decoder(tokens)
    with pytest.raises(ZeroDivisionError), record(tiny_decoder, [Site("resid_pre")]):
        1 / 0  # noqa: B018
    tiny_decoder(tokens)
    tiny_decoder.reset_hooks()
    tiny_decoder(tokens)
    assert calls == [name, name]


# What is refused


def test_an_edit_that_changes_the_shape_is_refused(
    tiny_decoder: Decoder, tokens: Tensor
) -> None:
    edits = {Site("resid_mid", 1): lambda activation: activation[:, :1]}
    message = r"the edit at resid_mid\[1\] changed the shape from \(5, 4, 8\) to \(5, 1"
    with pytest.raises(BadInput, match=message), intervene(tiny_decoder, edits):
        tiny_decoder(tokens)
    assert tiny_decoder(tokens).shape == (5, 4, 11)


@pytest.mark.parametrize("site", [Site("pattern", 2), Site("pattern", -1)])
def test_a_layer_that_does_not_exist_is_refused_with_the_sites_there_are(
    tiny_decoder: Decoder, site: Site
) -> None:
    message = (
        rf"unknown site '{site.kind}\[{site.layer}\]'; choose from: resid_pre\[0..1\]"
    )
    with pytest.raises(BadInput, match=message), record(tiny_decoder, [site]):
        pass
    with (
        pytest.raises(BadInput, match=message),
        intervene(tiny_decoder, {site: torch.neg}),
    ):
        pass


def test_a_site_that_this_model_lacks_is_refused(copy_head: GroundTruth) -> None:
    with (
        pytest.raises(BadInput, match=r"unknown site 'mlp_out\[0\]'"),
        record(copy_head.model, [Site("mlp_out")]),
    ):
        pass


def test_a_model_without_hook_points_is_refused() -> None:
    with (
        pytest.raises(BadInput, match="Linear cannot be observed"),
        record(nn.Linear(2, 2), [Site("logits")]),
    ):
        pass


def test_a_block_without_a_forward_pass_is_refused(tiny_decoder: Decoder) -> None:
    sites = [Site("logits"), Site("pattern", 1)]
    message = r"no forward pass reached logits, pattern\[1\]"
    with pytest.raises(BadInput, match=message), record(tiny_decoder, sites):
        pass
    with (
        pytest.raises(BadInput, match=message),
        intervene(tiny_decoder, dict.fromkeys(sites, torch.neg)),
    ):
        pass


def test_a_pass_that_does_not_reach_the_site_is_refused(
    tiny_decoder: Decoder, tokens: Tensor
) -> None:
    with (
        pytest.raises(BadInput, match=r"no forward pass reached resid_post\[1\]"),
        intervene(tiny_decoder, {Site("resid_post", 1): torch.neg}),
    ):
        tiny_decoder.through(tiny_decoder.embed(tokens), stop=1)


# measure


def last_row(pattern: Tensor, _batch: Batch) -> Tensor:
    return pattern[:, :, -1]


def correct(logits: Tensor, batch: Batch) -> Tensor:
    return (logits[:, -1].argmax(-1) == batch.targets).double()


SIGNALS = {
    "attention": Signal("pattern", last_row, axes=("head", "key"), unit="share"),
    "accuracy": Signal("logits", correct),
}


def batches(sizes: tuple[int, ...]) -> list[Batch]:
    source = torch.Generator().manual_seed(2)
    tokens = torch.randint(11, (sum(sizes), 4), generator=source)
    targets = torch.randint(11, (sum(sizes),), generator=source)
    ends = torch.tensor((0, *sizes)).cumsum(0).tolist()
    return [Batch(tokens[a:b], targets[a:b]) for a, b in pairwise(ends)]


@pytest.mark.parametrize("sizes", [(12,), (5, 7), (1, 1, 6, 4)])
@torch.no_grad()
def test_measure_equals_the_computation_on_all_data_at_once(
    tiny_decoder: Decoder, sizes: tuple[int, ...]
) -> None:
    result = measure(tiny_decoder, batches(sizes), SIGNALS)
    (whole,) = batches((sum(sizes),))
    sites = [Site("pattern", 0), Site("pattern", 1), Site("logits")]
    with record(tiny_decoder, sites) as seen:
        tiny_decoder(whole.tokens)
    direct = {
        "attention": torch.stack([last_row(seen[s], whole) for s in sites[:2]], dim=1),
        "accuracy": correct(seen[sites[2]], whole)[:, None],
    }
    for name, values in direct.items():
        values = values.double()
        spread = values.std(dim=0) / len(values) ** 0.5
        expected = torch.stack([values.mean(dim=0), spread])
        # Batches of other sizes may round the model's float32 activations otherwise.
        torch.testing.assert_close(result[name].values, expected, rtol=1e-5, atol=1e-6)


def test_a_measurement_is_labelled(tiny_decoder: Decoder) -> None:
    measured = measure(tiny_decoder, batches((3, 2)), SIGNALS)["attention"]
    assert measured.axes == ("statistic", "layer", "head", "key")
    assert measured.labels["statistic"] == ("mean", "standard_error")
    assert measured.labels["layer"] == (0, 1)
    assert (measured.name, measured.unit) == ("attention", "share")
    assert measured.provenance == {"site": "pattern", "n_examples": 5}


def test_measure_sees_the_wired_circuit_and_no_other(two_hop: GroundTruth) -> None:
    batch = Batch(two_hop.tokens, two_hop.targets)
    measured = measure(two_hop.model, [batch], SIGNALS)
    mean = measured["attention"].values[0]
    assert mean[1, 0, 1] > 0.999
    torch.testing.assert_close(mean[1, 1], torch.full((3,), 1 / 3).double())
    assert measured["accuracy"].values[:, 0].tolist() == [1.0, 0.0]


def test_one_example_has_no_spread(tiny_decoder: Decoder) -> None:
    measured = measure(tiny_decoder, batches((1,)), SIGNALS)["attention"]
    assert not measured.values[1].any()


def test_each_batch_is_run_forward_once_without_gradients(
    tiny_decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    forward = tiny_decoder.forward

    def counted(*arguments: Any) -> Tensor:
        calls.append(torch.is_grad_enabled())
        return forward(*arguments)

    monkeypatch.setattr(tiny_decoder, "forward", counted)
    measure(tiny_decoder, batches((2, 3, 4)), SIGNALS)
    assert calls == [False, False, False]


def test_measure_keeps_nothing_of_an_example(tiny_decoder: Decoder) -> None:
    seen: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def spy(pattern: Tensor, _batch: Batch) -> Tensor:
        alive.append(sum(ref() is not None for ref in seen))
        values = pattern.sum(-1)
        seen.extend((weakref.ref(pattern), weakref.ref(values)))
        return values

    signal = Signal("pattern", spy, axes=("head", "query"))
    measure(tiny_decoder, iter(batches((2,) * 6)), {"mass": signal})
    assert [ref for ref in seen if ref() is not None] == []
    # Two layers of a pass: never more than the pattern and value of the layer before.
    assert max(alive) <= 2


def test_measure_leaves_no_hook_even_if_a_signal_fails(tiny_decoder: Decoder) -> None:
    before = n_hooks(tiny_decoder)

    def fail(_pattern: Tensor, _batch: Batch) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure(tiny_decoder, batches((2,)), {"x": Signal("pattern", fail)})
    assert n_hooks(tiny_decoder) == before


@pytest.mark.parametrize(
    "none", [list, lambda: [Batch(torch.zeros(0, 3).long(), torch.zeros(0).long())]]
)
def test_measuring_no_example_is_refused(
    tiny_decoder: Decoder, none: Callable[[], list[Batch]]
) -> None:
    with pytest.raises(BadInput, match="measure was given no batch"):
        measure(tiny_decoder, none(), SIGNALS)


def test_measuring_what_the_model_lacks_is_refused(copy_head: GroundTruth) -> None:
    batch = Batch(copy_head.tokens, copy_head.targets)
    signals = {"x": Signal("mlp_act", lambda activation, _batch: activation)}
    with pytest.raises(BadInput, match=r"unknown site 'mlp_act\[0\]'"):
        measure(copy_head.model, [batch], signals)
