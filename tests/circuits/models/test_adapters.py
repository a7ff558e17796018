"""A model with a PEFT adapter computes what peft itself computes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from circuits.hooks import record
from circuits.inspection.inspect import inspect
from circuits.models import adapters
from circuits.models import open as pretrained
from circuits.models.language_model import behind
from circuits.sites import Site
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput

peft = pytest.importorskip("peft")

TARGETS = {
    "llama": ["q_proj", "v_proj", "o_proj", "down_proj"],
    "gpt2": ["c_attn", "c_proj"],
}


@pytest.fixture(params=["llama", "gpt2"])
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, Any]:
    """A stored model, a stored adapter for it, and peft's own model with both."""
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    hf = random_model(request.param).eval()
    hf.save_pretrained(base)
    letter_tokenizer().save_pretrained(base)
    torch.manual_seed(0)
    names = TARGETS[request.param]
    wanted = peft.LoraConfig(
        r=4,
        target_modules=names,
        init_lora_weights=False,
        fan_in_fan_out=request.param == "gpt2",
    )
    whole = peft.get_peft_model(hf, wanted)
    for name, weight in whole.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.3)
    whole.peft_config["default"].base_model_name_or_path = str(base)
    whole.save_pretrained(adapter)
    return base, adapter, whole.eval()


@torch.no_grad()
@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("backend", ["hf", "nnsight"])
def test_logits_are_peft_s_own(
    folders: tuple[Path, Path, Any], merged: bool, backend: str
) -> None:
    base, adapter, whole = folders
    model = pretrained.open(
        base, device="cpu", adapter=adapter, merged=merged, backend=backend
    )
    tokens = model.prompts(["abcdef"]).tokens
    expected = whole(tokens).logits
    torch.testing.assert_close(model(tokens), expected, atol=1e-4, rtol=1e-4)
    plain = pretrained.open(base, device="cpu")(tokens)
    assert float((plain - expected).abs().max()) > 0.1
    _, hf = behind(model.module)
    beside = any("lora_" in name for name, _ in hf.named_modules())
    assert beside is not merged
    assert model.name == f"{base} with adapter"


@torch.no_grad()
def test_heads_and_neurons_carry_the_adapter(folders: tuple[Path, Path, Any]) -> None:
    """An attached adapter is a part of W_O, so that heads sum to attn_out."""
    base, adapter, _ = folders
    sites = [Site("head_out", 1), Site("attn_out", 1), Site("resid_post", 2)]
    found = []
    for merged in (True, False):
        model = pretrained.open(base, device="cpu", adapter=adapter, merged=merged)
        with record(model, sites) as seen:
            model(model.prompts(["abcdef"]).tokens)
        found.append({site: seen[site].clone() for site in sites})
    for site in sites:
        torch.testing.assert_close(found[1][site], found[0][site], atol=1e-4, rtol=1e-4)


def test_an_adapter_s_folder_names_its_model(folders: tuple[Path, Path, Any]) -> None:
    base, adapter, _ = folders
    alone, both = (
        inspect(model, "abcdef", answer="g")
        for model in (
            pretrained.open(adapter, device="cpu"),
            pretrained.open(base, device="cpu", adapter=adapter),
        )
    )
    assert alone.as_dict() == both.as_dict()


def test_what_is_no_adapter_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    random_model("llama").save_pretrained(base)
    letter_tokenizer().save_pretrained(base)
    adapter.mkdir()
    for name, words in (
        (adapters.CONFIG, "adapter is no adapter: it has no adapter_config.json"),
        (adapters.WEIGHTS, "it has no adapter_model.safetensors"),
    ):
        with pytest.raises(BadInput, match=words):
            pretrained.open(base, adapter=adapter)
        (adapter / name).write_text("{}")
    with pytest.raises(BadInput, match="adapter does not fit the model"):
        pretrained.open(base, device="cpu", adapter=adapter)
    with pytest.raises(BadInput, match="is not an adapter's"):
        pretrained.open(adapter, device="cpu")
    monkeypatch.setattr(adapters, "find_spec", lambda _name: None)
    with pytest.raises(BadInput, match=r"pip install reasonscope\[peft\]"):
        pretrained.open(base, adapter=adapter)
