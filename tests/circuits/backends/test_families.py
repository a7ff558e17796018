"""Where a decoder's parts are is read off its modules, and is true for every family."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from circuits.backends import families, hf
from circuits.backends.families import family_of
from circuits.hooks import record
from circuits.inspection.patching import attribute
from circuits.models import open as pretrained
from circuits.models.language_model import LanguageModel
from circuits.sites import Site, described
from tests.random_models import CONFIGS, N_LAYERS, letter_tokenizer, random_model
from trained.errors import BadInput

TEXTS = ("the cat sat on", "a dog")
CLOSE = 4e-5


def opened(family: str) -> LanguageModel:
    return pretrained.wrap(random_model(family), letter_tokenizer())


@torch.no_grad()
def alone(family: str, tokens: Tensor) -> dict[Site, Tensor]:
    """What transformers says of a single prompt, with nothing of ours."""
    model = random_model(family, attn_implementation="eager")
    asked = {"output_attentions": True, "output_hidden_states": True}
    said = model(input_ids=tokens, use_cache=False, **asked)
    found = {Site("logits"): said.logits[0]}
    for layer in range(N_LAYERS):
        found[Site("resid_pre", layer)] = said.hidden_states[layer][0]
        found[Site("pattern", layer)] = said.attentions[layer][0].transpose(0, 1)
    return found


@torch.no_grad()
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_padded_prompts_are_single_ones_of_eager_transformers(family: str) -> None:
    """Within 4e-5: logits, patterns and residuals; windows are of 4 tokens."""
    model, errors = opened(family), {}
    single = [alone(family, model.prompts([text]).tokens) for text in TEXTS]
    for side in ("left", "right"):
        prompts = model.prompts(TEXTS, side=side)
        with record(model, hf.sites(model.module)) as seen:
            model(prompts.tokens, prompts.mask)
        for row, expected in enumerate(single):
            places = prompts.mask[row]
            for site, reference in expected.items():
                found = seen[site][row]
                if site.kind == "pattern":
                    found = found.transpose(0, 1)[..., places]
                error = (found[places] - reference).abs().max().item()
                errors[side, row, site] = error
    assert {place: error for place, error in errors.items() if not error < CLOSE} == {}


def test_a_granite_models_attributions_sum_to_the_logit_difference() -> None:
    """Once they summed to -10.0 where the difference was -5.08, and nothing said so."""
    model = opened("granite")
    clean, corrupt = (
        model.prompts([text], [answer])
        for text, answer in (("a cat", "s"), ("a dog", "t"))
    )
    found = attribute(model, clean, corrupt).values.sum()
    logits = model(clean.tokens)[0, -1]
    expected = logits[clean.targets[0]] - logits[corrupt.targets[0]]
    torch.testing.assert_close(found, expected.to(found), atol=1e-4, rtol=1e-4)


# What a family does not have


def test_experts_have_no_neurons_of_one_layer() -> None:
    mixtral, mixed = random_model("mixtral"), random_model("qwen3_moe")
    assert "mlp_act" not in {site.kind for site in hf.sites(mixtral)}
    assert [s.layer for s in hf.sites(mixed) if s.kind == "mlp_act"] == [1]
    message = (
        r"unknown site 'mlp_act\[0\]'; choose from: resid_pre\[0\.\.2\], .*mlp_out"
    )
    with pytest.raises(BadInput, match=message):
        hf.attach(mixtral, Site("mlp_act"), torch.neg)
    with pytest.raises(BadInput, match=r"unknown site 'mlp_act\[0\]'.*mlp_act\[1\]"):
        hf.attach(mixed, Site("mlp_act"), torch.neg)


@pytest.mark.parametrize("backend", ["bridge", "nnsight"])
def test_other_backends_have_no_neurons_of_experts_either(backend: Any) -> None:
    model = pretrained.wrap(random_model("qwen3_moe"), None, backend=backend)
    message = r"unknown site 'mlp_act\[2\]'"
    with (
        pytest.raises(BadInput, match=message),
        record(model, [Site("mlp_act", 2)]),
    ):
        pass


def test_sites_are_named_in_few_words() -> None:
    sites = [Site("value", layer) for layer in range(3)]
    sites += [
        Site("mlp_act", 1),
        Site("mlp_out", 0),
        Site("mlp_out", 2),
        Site("logits"),
    ]
    expected = ["value[0..2]", "mlp_act[1]", "mlp_out[0,2]", "logits"]
    assert described(sites) == expected


# What cannot be told


def opt() -> nn.Module:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.OPTConfig(vocab_size=9, ffn_dim=8, **sizes)
    return transformers.OPTForCausalLM(config)


def test_a_strange_block_is_refused_with_what_was_found_in_it() -> None:
    message = (
        r"cannot tell the .* of OPTDecoder\w* \(.*\): found .*backends/families.py"
    )
    with pytest.raises(BadInput, match=message):
        family_of(opt())


def falcon() -> nn.Module:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return transformers.FalconForCausalLM(
        transformers.FalconConfig(vocab_size=9, **sizes)
    )


def gptj() -> nn.Module:
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1, "rotary_dim": 4}
    config = transformers.GPTJConfig(vocab_size=9, n_positions=8, **sizes)
    return transformers.GPTJForCausalLM(config)


def gpt_oss() -> nn.Module:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    few = {"num_key_value_heads": 1, "head_dim": 8, "num_local_experts": 2}
    config = transformers.GptOssConfig(
        vocab_size=9, intermediate_size=8, num_experts_per_tok=1, **sizes, **few
    )
    return transformers.GptOssForCausalLM(config)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (falcon, "FalconAttention computes attention in its own way.*backend bridge"),
        (gptj, "GPTJAttention computes attention in its own way"),
        (gpt_oss, "GptOssAttention has attention sinks.*not probabilities"),
    ],
)
def test_attention_that_is_out_of_reach_is_refused(
    made: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        family_of(made())


def test_what_the_tree_does_not_tell_is_one_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(families.EXCEPTIONS, "llama", {"residual_scale": 2.0})
    assert family_of(random_model("llama")).residual_scale == 2.0


def test_a_model_without_an_unembedding_is_refused() -> None:
    message = "LlamaModel has no unembedding; load it with AutoModelForCausalLM"
    with pytest.raises(BadInput, match=message):
        hf.sites(random_model("llama").model)
