"""What is particular to bridges; that all backends agree is in test_agreement."""

from typing import Any

import pytest
import torch
from transformer_lens import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

from circuits.backends import hooked
from circuits.hooks import intervene, record
from circuits.models import open as pretrained
from circuits.models.contract import check_model
from circuits.models.language_model import LanguageModel, from_bridge
from circuits.sites import Site, hooked_name
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput


@pytest.fixture(scope="module")
def bridged() -> LanguageModel:
    return pretrained.wrap(random_model("gemma2"), letter_tokenizer(), backend="bridge")


@torch.no_grad()
def test_a_bridge_parts_heads_only_while_somebody_listens(
    bridged: LanguageModel,
) -> None:
    tokens = torch.tensor([[5, 6, 7]])
    sites = [Site("head_out", 0), Site("head_out", 2)]
    assert not bridged.module.cfg.use_attn_result
    with record(bridged, sites):
        with intervene(bridged, {sites[0]: torch.zeros_like}):
            bridged(tokens)
        assert bridged.module.cfg.use_attn_result
    assert not bridged.module.cfg.use_attn_result


@torch.no_grad()
def test_the_logits_of_a_bridge_lie_behind_the_soft_cap(bridged: LanguageModel) -> None:
    tokens = torch.tensor([[5, 6, 7]])
    with record(bridged, [Site("logits")]) as seen:
        logits = bridged(tokens)
    assert torch.equal(seen[Site("logits")], logits)
    assert logits.abs().max() <= 3.0
    with intervene(bridged, {Site("logits"): lambda logits: logits + 10}):
        assert torch.equal(bridged(tokens), logits + 10)


@torch.no_grad()
def test_what_a_bridge_caches_is_what_is_recorded(bridged: LanguageModel) -> None:
    tokens = torch.tensor([[5, 6, 7]])
    sites = [Site(kind, 1) for kind in ("pattern", "value", "resid_mid", "mlp_act")]
    with record(bridged, sites) as seen:
        _, cache = bridged.module.run_with_cache(tokens)
    for site in sites:
        assert torch.equal(seen[site], cache[hooked_name(site)])


def test_a_missing_site_of_a_bridge_is_refused() -> None:
    neox = pretrained.wrap(random_model("neox"), letter_tokenizer(), backend="bridge")
    for site in (Site("resid_mid", 0), Site("pattern", 3), Site("value", 3)):
        with pytest.raises(BadInput, match="unknown site"):
            hooked.attach(neox.module, site, torch.neg)


@pytest.fixture(scope="module")
def native() -> Any:
    """A model of TransformerLens' own."""
    config = TransformerBridgeConfig(
        d_model=16,
        d_head=8,
        n_heads=2,
        n_layers=2,
        n_ctx=8,
        d_vocab=20,
        d_mlp=24,
        act_fn="gelu",
        normalization_type="LN",
        seed=0,
        init_mode="gpt2",
    )
    return TransformerBridge.boot_native(config).eval()


def test_a_native_bridge_keeps_the_contract_but_cannot_part_heads(native: Any) -> None:
    assert Site("head_out") not in hooked.sites(native)
    with pytest.raises(BadInput, match=r"unknown site 'head_out\[0\]'"):
        hooked.attach(native, Site("head_out"), torch.neg)
    check_model(from_bridge(native, None, "native"))


def test_a_bridge_with_folded_weights_keeps_the_contract() -> None:
    wrapped = pretrained.wrap(random_model("gpt2"), None, backend="bridge")
    wrapped.module.enable_compatibility_mode()
    check_model(from_bridge(wrapped.module, None, "folded"))
