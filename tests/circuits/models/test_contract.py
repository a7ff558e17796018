"""The contract holds for good models and names what is wrong with bad ones."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from circuits.backends import hf, hf_attention
from circuits.models.contract import check_model
from circuits.models.language_model import LanguageModel, from_hf
from circuits.sites import Site
from tests.ground_truth import Decoder
from tests.random_models import LAYOUTS, random_model
from trained.errors import BadInput
from trained.recall.model import constructed_model
from trained.recall.task import relation_table


@pytest.fixture
def model() -> LanguageModel:
    return from_hf(random_model("gpt2"), None, "tiny")


@pytest.mark.parametrize("family", LAYOUTS)
def test_every_family_keeps_the_contract(family: str) -> None:
    check_model(from_hf(random_model(family), None, family))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats_keep_the_contract(dtype: torch.dtype) -> None:
    check_model(from_hf(random_model("llama", dtype=dtype), None, "short"))


def test_small_models_keep_the_contract(tiny_decoder: Decoder) -> None:
    check_model(tiny_decoder, torch.tensor([[1, 2, 3], [4, 5, 6]]))
    recall = constructed_model(relation_table("affine", 4, 12, 0), 2, 0)
    check_model(recall, torch.tensor([[0, 5, 1, 6, 2, 7]]))


def test_a_plain_transformers_model_is_checked_on_given_tokens() -> None:
    check_model(random_model("llama"), torch.tensor([[5, 6, 7]]))


def test_only_a_language_model_brings_its_own_tokens(tiny_decoder: Decoder) -> None:
    with pytest.raises(BadInput, match="check_model needs tokens for a Decoder"):
        check_model(tiny_decoder)


def test_the_model_is_left_as_it_was(model: LanguageModel) -> None:
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    check_model(model)
    assert all(torch.equal(before[k], v) for k, v in model.module.state_dict().items())
    assert not any(module._forward_hooks for module in model.module.modules())


# Broken models


def deaf_at(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let edits at a site be seen but not used: the silent no-op."""
    attach = hf.attach

    def deaf(module: nn.Module, place: Site, callback: Any) -> Any:
        def ignored(activation: Tensor) -> None:
            callback(activation)

        return attach(module, place, ignored if place == site else callback)

    monkeypatch.setattr(hf, "attach", deaf)


@pytest.mark.parametrize(
    "site", [Site("pattern", 0), Site("head_out", 2), Site("resid_post", 2)]
)
def test_an_edit_that_does_nothing_is_caught(
    model: LanguageModel, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf_at(site, monkeypatch)
    message = rf"an edit at {site.kind}\[{site.layer}\] does not change the logits"
    with pytest.raises(BadInput, match=message):
        check_model(model)


def test_a_hook_that_never_fires_is_caught(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach = hf.attach

    def lost(module: nn.Module, site: Site, callback: Any) -> Any:
        seen = site != Site("mlp_out", 2)
        return attach(module, site, callback if seen else lambda _activation: None)

    monkeypatch.setattr(hf, "attach", lost)
    with pytest.raises(BadInput, match=r"no forward pass reached mlp_out\[2\]"):
        check_model(model)


def test_a_patch_that_goes_to_the_wrong_place_is_caught(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach = hf.attach

    def swapped(module: nn.Module, site: Site, callback: Any) -> Any:
        def shifted(activation: Tensor) -> Tensor | None:
            edited = callback(activation)
            return None if edited is None else edited.roll(1, dims=-1)

        return attach(module, site, shifted if site == Site("value", 2) else callback)

    monkeypatch.setattr(hf, "attach", swapped)
    message = r"an identity patch at value\[2\] changes the logits"
    with pytest.raises(BadInput, match=message):
        check_model(model)


def test_an_edit_that_leaks_into_other_prompts_is_caught(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach = hf.attach

    def leaky(module: nn.Module, site: Site, callback: Any) -> Any:
        def spread(activation: Tensor) -> Tensor | None:
            edited = callback(activation)
            if edited is None or torch.equal(edited, activation):
                return edited
            return edited + (edited - activation).sum(0)

        return attach(module, site, spread)

    monkeypatch.setattr(hf, "attach", leaky)
    with pytest.raises(BadInput, match="an edit of one prompt changes another's"):
        check_model(model)


@pytest.mark.parametrize("factor", [0.5, float("nan")])
def test_patterns_that_are_no_probabilities_are_caught(
    model: LanguageModel, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = hf_attention.attention_pattern
    monkeypatch.setattr(
        hf_attention,
        "attention_pattern",
        lambda *args, **options: factor * pattern(*args, **options),
    )
    with pytest.raises(BadInput, match=r"rows of pattern\[0\] are not probabilities"):
        check_model(model)


def test_a_lens_that_is_not_the_readout_is_caught(model: LanguageModel) -> None:
    wrong = replace(model.readout, final_norm=nn.Identity())
    message = r"the lens at resid_post\[2\] is not the logits"
    with pytest.raises(BadInput, match=message):
        check_model(replace(model, readout=wrong))


def test_positions_that_count_padding_are_caught(model: LanguageModel) -> None:
    def run(tokens: Tensor, mask: Tensor, _positions: Tensor) -> Tensor:
        return model.module(tokens, attention_mask=mask).logits

    with pytest.raises(BadInput, match="padding on the left changes the logits"):
        check_model(replace(model, run=run))


def test_attention_to_padding_is_caught(model: LanguageModel) -> None:
    def run(tokens: Tensor, _mask: Tensor, positions: Tensor) -> Tensor:
        return model.module(
            tokens, attention_mask=torch.ones_like(tokens), position_ids=positions
        ).logits

    with pytest.raises(BadInput, match=r"pattern\[0\] looks at what it may not"):
        check_model(replace(model, run=run))


def test_a_model_that_rolls_dice_is_caught() -> None:
    model = random_model("llama")
    noise = model.model.norm.register_forward_hook(
        lambda _module, _inputs, output: output + 0.1 * torch.randn_like(output)
    )
    with pytest.raises(BadInput, match="two passes differ"):
        check_model(from_hf(model, None, "noisy"))
    noise.remove()
