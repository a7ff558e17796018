"""Faults that this field has really seen, put back into a model: each is caught.

That none is found in healthy models is in test_doctor.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from einops import repeat
from torch import Tensor, nn

from circuits.backends import families, hf, hf_attention
from circuits.backends.anatomy import Resumption
from circuits.backends.branches import Layout
from circuits.inspection.doctor import doctor
from circuits.models import open as pretrained
from circuits.models.contract import check_model
from circuits.models.language_model import LanguageModel
from circuits.models.norms import NormParts
from circuits.sites import Kind, Site
from tests.random_models import letter_tokenizer, random_model
from trained.errors import BadInput

Patch = pytest.MonkeyPatch
Break = Callable[[Patch, LanguageModel], LanguageModel | None]


@dataclass(frozen=True)
class Fault:
    """What is broken, in which family, and the law that must say so.

    Attributes:
        family: whose model is broken.
        law: what it breaks, among others.
        put: breaks it.
        at_load: whether the check at load sees it, too.
    """

    family: str
    law: str
    put: Break
    at_load: bool = True


# Hooks


def through(change: Callable[[Site, Any], Any]) -> Break:
    """Hooks whose callbacks are changed, site by site."""

    def put(patch: Patch, _model: LanguageModel) -> None:
        attach = hf.attach
        patch.setattr(
            hf, "attach", lambda m, site, see: attach(m, site, change(site, see))
        )

    return put


def never_fires(site: Site, see: Any) -> Any:
    return see if site != Site("mlp_out", 1) else lambda _activation: None


def deaf(site: Site, see: Any) -> Any:
    def ignored(activation: Tensor) -> None:
        see(activation)

    return see if site != Site("resid_mid", 1) else ignored


def edited(change: Callable[[Tensor, Tensor], Tensor]) -> Break:
    """What an edit made is changed on its way back."""

    def one(_site: Site, see: Any) -> Any:
        def back(activation: Tensor) -> Tensor | None:
            found = see(activation)
            return None if found is None else change(activation, found)

        return back

    return through(one)


def leaky(before: Tensor, after: Tensor) -> Tensor:
    return after if torch.equal(before, after) else after + (after - before).sum(0)


def shown(kind: Kind | None, change: Callable[[Tensor], Tensor]) -> Break:
    """Sites of a kind, or all, show something else; edits are as they were."""

    def one(site: Site, see: Any) -> Any:
        return see if kind not in (None, site.kind) else lambda x: see(change(x))

    return through(one)


# Runs


def run(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Break:
    """A model that is run with another mask or other positions."""

    def put(_patch: Patch, model: LanguageModel) -> LanguageModel:
        own = model.run
        return replace(
            model, run=lambda tokens, mask, places: own(tokens, *change(mask, places))
        )

    return put


def off_by_one(mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return mask, positions + (~mask).any(1, keepdim=True)


def counting_padding(mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return mask, torch.arange(mask.shape[1]).expand_as(positions)


def dice(_patch: Patch, model: LanguageModel) -> None:
    norm = model.module.get_submodule(families.family_of(model.module).final_norm)
    norm.register_forward_hook(lambda _m, _i, out: out + 0.1 * torch.randn_like(out))


def adapter(_patch: Patch, model: LanguageModel) -> None:
    """A layer beside the output projection whose weights nobody reads."""
    model.module.model.layers[1].self_attn.o_proj.register_forward_hook(
        lambda _module, inputs, output: output + 0.1 * inputs[0]
    )


# Layouts


def layout(**changes: Any) -> Break:
    def put(patch: Patch, model: LanguageModel) -> LanguageModel:
        wrong = replace(families.family_of(model.module), **changes)
        patch.setitem(families._FOUND, model.module, wrong)
        return replace(model, readout=hf.readout(model.module))

    return put


def late(patch: Patch, _model: LanguageModel) -> None:
    blocks = hf._blocks

    def rolled(model: nn.Module) -> nn.ModuleList:
        first, *rest = blocks(model)
        return nn.ModuleList([*rest, first])

    patch.setattr(hf, "_blocks", rolled)


def groups(name: str, axes: str) -> Break:
    """Keys, or weights, dealt out to heads in the wrong order."""

    def dealt(shared: Tensor, n_heads: int, *_d_head: int) -> Tensor:
        if name == "_by_head":
            shared = shared.unflatten(1, (-1, *_d_head)).movedim(1, 0)
        n_kv = shared.shape[axes.split().index("kv")]
        return repeat(shared, axes, group=n_heads // n_kv)

    where = hf if name == "_by_head" else hf_attention
    return lambda patch, _model: patch.setattr(where, name, dealt)


# Patterns


def pattern(**changes: Callable[[Any], Any]) -> Break:
    """Patterns that are worked out with other options."""

    def put(patch: Patch, _model: LanguageModel) -> None:
        own = hf_attention.attention_pattern

        def wrong(*args: Any, **options: Any) -> Tensor:
            changed = {key: change(options[key]) for key, change in changes.items()}
            return own(*args, **{**options, **changed})

        patch.setattr(hf_attention, "attention_pattern", wrong)

    return put


def mask(change: Callable[[Tensor], Tensor]) -> Break:
    """Patterns that read the mask wrongly."""

    def put(patch: Patch, _model: LanguageModel) -> None:
        own = hf_attention._read_mask

        def wrong(mask: Tensor | None, scores: Tensor) -> tuple[Tensor, float]:
            return change(own(mask, scores)[0]), 0.0

        patch.setattr(hf_attention, "_read_mask", wrong)

    return put


def no_window(seen: Tensor) -> Tensor:
    keys = seen.any(-2, keepdim=True)
    return keys & torch.ones_like(seen).tril()


def halved(patch: Patch, _model: LanguageModel) -> None:
    own = hf_attention.attention_pattern
    wrong = lambda *args, **options: 0.5 * own(*args, **options)  # noqa: E731
    patch.setattr(hf_attention, "attention_pattern", wrong)


def other_sets(patch: Patch, _model: LanguageModel) -> None:
    own = hf_attention._Call.with_mass
    wrong = lambda call, value, sets: own(call, value, sets.roll(1, -1))  # noqa: E731
    patch.setattr(hf_attention._Call, "with_mass", wrong)


# Readouts and shortcuts


def readout(change: Callable[[LanguageModel], dict[str, Any]]) -> Break:
    return lambda _patch, model: replace(
        model, readout=replace(model.readout, **change(model))
    )


def folded_twice(model: LanguageModel) -> dict[str, Any]:
    gain = model.module.model.norm.weight
    return {"unembedding": gain[:, None] * model.readout.unembedding}


def tied(model: LanguageModel) -> dict[str, Any]:
    return {"unembedding": model.module.model.embed_tokens.weight.mT}


def early(patch: Patch, _model: LanguageModel) -> None:
    def wrong(model: nn.Module) -> Resumption:
        blocks, last = list(hf._blocks(model)), model.get_submodule("lm_head")
        return Resumption([blocks[0], *blocks[:-1]], last, last)

    patch.setattr(hf, "resumption", wrong)


def unmasked(patch: Patch, _model: LanguageModel) -> None:
    seen = Layout.seen
    everything = lambda *args: torch.ones_like(seen(*args))  # noqa: E731
    patch.setattr(Layout, "seen", everything)


def no_scale(patch: Patch, _model: LanguageModel) -> None:
    ones = lambda _self, states: torch.ones_like(states[..., :1])  # noqa: E731
    patch.setattr(NormParts, "inverse_scale", ones)


def biased(patch: Patch, model: LanguageModel) -> None:
    bias = model.module.transformer.h[1].attn.c_proj.bias
    shown("head_out", lambda heads: heads + bias)(patch, model)


FAULTS: dict[str, Fault] = {
    "a hook that never fires": Fault("llama", "fires", through(never_fires)),
    "an edit that does nothing": Fault("llama", "edits", through(deaf), at_load=False),
    "an edit that leaks into other prompts": Fault("llama", "identity", edited(leaky)),
    "an edit that lands one unit further": Fault(
        "llama", "identity", edited(lambda _before, after: after.roll(1, -1))
    ),
    "a site that shows a rounded activation": Fault(
        "llama", "residual", shown(None, lambda x: x.bfloat16().float())
    ),
    "a site that shows a shorter type": Fault(
        "llama", "residual", shown(None, lambda x: x.bfloat16())
    ),
    "heads in the wrong order": Fault(
        "llama", "mixing", shown("head_out", lambda heads: heads.flip(2))
    ),
    "values in the wrong order": Fault(
        "llama", "mixing", shown("value", lambda value: value.flip(2))
    ),
    "a bias counted in each head": Fault("gpt2", "heads", biased),
    "an adapter beside the weights": Fault("llama", "heads", adapter),
    "positions off by one under padding": Fault(
        "gpt2", "padding left", run(off_by_one)
    ),
    "positions that count padding": Fault(
        "gpt2", "padding left", run(counting_padding)
    ),
    "rotary at wrong positions": Fault(
        "llama", "observing", run(lambda mask, positions: (mask, 2 * positions))
    ),
    "padding that is looked at": Fault(
        "llama", "padding left", run(lambda mask, at: (torch.ones_like(mask), at))
    ),
    "a model that rolls dice": Fault("llama", "observing", dice),
    "a missing multiplier": Fault("granite", "residual", layout(residual_scale=1.0)),
    "a missing multiplier, attributed": Fault(
        "granite", "attribution", layout(residual_scale=1.0)
    ),
    "a missing factor of the logits": Fault("granite", "lens", layout(logit_scale=1.0)),
    "a soft cap of the logits ignored": Fault("gemma2", "lens", layout(soft_cap=None)),
    "attention counted before its norm": Fault(
        "gemma2", "residual", layout(attention_added="self_attn")
    ),
    "an MLP counted before its norm": Fault(
        "olmo2", "residual", layout(mlp_added="mlp")
    ),
    "the middle read before the attention": Fault(
        "llama", "residual", layout(middle="input_layernorm")
    ),
    "neurons before they are active": Fault(
        "llama", "neurons", layout(down_projection="mlp.up_proj")
    ),
    "queries taken for values": Fault(
        "neox", "values", layout(joint_order=""), at_load=False
    ),
    "every block one late": Fault("llama", "residual", late),
    "groups of keys misassigned": Fault(
        "llama", "mixing", groups("_for_each_head", "b kv key d -> b (group kv) key d")
    ),
    "groups of weights misassigned": Fault(
        "llama", "values", groups("_by_head", "kv d e -> (group kv) d e"), at_load=False
    ),
    "a wrong scale in attention": Fault(
        "llama", "mixing", pattern(scaling=lambda scale: 2 * scale)
    ),
    "a soft cap of the scores ignored": Fault(
        "gemma2", "mixing", pattern(soft_cap=lambda _cap: None)
    ),
    "a window ignored": Fault("mistral", "mixing", mask(no_window), at_load=False),
    "a mask inverted": Fault("llama", "rows", mask(torch.logical_not)),
    "a pattern of half its mass": Fault("llama", "rows", halved),
    "mass on other keys": Fault("llama", "views", other_sets, at_load=False),
    "a lens without the final norm": Fault(
        "llama", "lens", readout(lambda _model: {"final_norm": nn.Identity()})
    ),
    "a norm folded twice": Fault("llama", "lens", readout(folded_twice)),
    "an unembedding tied wrongly": Fault("llama", "lens", readout(tied)),
    "a resumed pass that begins early": Fault("llama", "resumed", early, at_load=False),
    "branches that see each other": Fault("llama", "branched", unmasked, at_load=False),
    "attribution without the scale": Fault(
        "llama", "attribution", no_scale, at_load=False
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    model = pretrained.wrap(random_model(fault.family), letter_tokenizer())
    broken = fault.put(monkeypatch, model) or model
    found = doctor(broken)
    (laws,) = found.found.values()
    states = {finding.law: finding.state for finding in laws}
    assert states[fault.law] == "wrong", states
    assert found.state == "wrong"
    if fault.at_load:
        with pytest.raises(BadInput):
            check_model(broken)
