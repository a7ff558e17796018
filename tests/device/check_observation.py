"""Views of a model and edits to it are the same on a device that is not the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

import reasonscope as rs
from circuits.interventions.edit import (
    Add,
    Keep,
    Permute,
    Put,
    Remove,
    Sharpen,
    TransplantWithin,
    Zero,
)
from circuits.interventions.identity_surgery import Surgery, operate
from circuits.interventions.weights import edited
from circuits.models.language_model import LanguageModel
from circuits.models.open import wrap
from tests.circuits.scan.facts import EXTRA, FACTS, row
from tests.device import standin
from tests.word_models import word_model
from trained import device
from trained.task import Batch

ROWS = [row(number) for number in range(len(FACTS))]
TEXTS = [f"The capital of {country} is {city}" for country, city in FACTS.items()]
NAMES = ("France", "Italy", "Japan", "Peru")
RESID, HEAD = rs.Part("resid_post", 0, positions="country"), rs.Part("head_out", 1, 0)
PATTERN = rs.Part("pattern", 1, head=0)

View = Callable[[LanguageModel], Tensor]


def facts(model: LanguageModel, names: tuple[str, ...]) -> Batch:
    prompts = [f"The capital of {name} is" for name in names]
    answers = [f" {FACTS[name]}" for name in names]
    return model.prompts(prompts, answers, roles={"country": names})


def clean(model: LanguageModel) -> Batch:
    return facts(model, NAMES[:2])


def corrupt(model: LanguageModel) -> Batch:
    return facts(model, NAMES[1:3])


def vector(model: LanguageModel, n_rows: int | None = None) -> Tensor:
    """A direction, or several, of the model's width."""
    size = (32,) if n_rows is None else (n_rows, 32)
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(0))
    return drawn.to(model.device)


def under(rule: Callable[[LanguageModel], Any], part: rs.Part = RESID) -> View:
    """The answers' log-probabilities while a rule is at work."""

    def view(model: LanguageModel) -> Tensor:
        prompts, chosen = clean(model), rule(model)
        named = isinstance(chosen, str) and chosen != "zero"
        reference = corrupt(model) if named else None
        with rs.ablate(model, prompts, part, chosen, reference=reference):
            return rs.log_prob(model, prompts).values

    return view


def knocked_out(model: LanguageModel) -> Tensor:
    with rs.knock_out(model, clean(model), 1, to="country"):
        return rs.log_prob(model, clean(model)).values


def operated(model: LanguageModel) -> Tensor:
    with operate(model, clean(model), [Surgery(1, 0, "qk"), Surgery(1, 0, "ov", 3)]):
        return rs.log_prob(model, clean(model)).values


def reweighted(model: LanguageModel) -> Tensor:
    changed = edited(model.module, {"*.layers.0.*.weight": lambda weight: weight * 2})
    return rs.log_prob(wrap(changed, model.tokenizer), clean(model)).values


def recorded(model: LanguageModel) -> Tensor:
    site = rs.Site("resid_mid", 1)
    with rs.record(model, [site]) as seen:
        model(clean(model).tokens)
    return seen[site]


def generated(model: LanguageModel) -> Tensor:
    signals = ("attention", "logit", "lens")
    prompts = ["The capital of France is", "people say that"]
    chains = rs.generate(model, prompts, 4, signals=signals)
    found = [chain.mass for chain in chains] + [chain.logit for chain in chains]
    found += [chain.log_prob for chain in chains]
    return torch.cat([reading.values.flatten() for reading in found])


def inspected(model: LanguageModel) -> Tensor:
    signals = ("lens", "attention", "alignment", "patching")
    row = {name: value for name, value in ROWS[1].items() if name != "group"}
    found = rs.inspect(model, signals=signals, **row)
    parts = (found.lens.log_prob, found.logit, found.alignment, found.patching)
    return torch.cat([part.values.flatten() for part in parts if part is not None])


VIEWS: dict[str, View] = {
    "lens": lambda m: rs.lens(m, clean(m)).log_prob.values,
    "ranks": lambda m: rs.lens(m, clean(m)).rank.values,
    "attention": lambda m: rs.attention(m, clean(m), to="country").values,
    "alignment": lambda m: rs.alignment(m, facts(m, NAMES), "country", "last").values,
    "record": recorded,
    "patch residuals": lambda m: rs.patch(m, clean(m), corrupt(m), "resid_post").values,
    "patch heads": lambda m: rs.patch(m, clean(m), corrupt(m), "head_out").values,
    "patch paths": lambda m: rs.path_patch(m, clean(m), corrupt(m), HEAD).values,
    "attribution": lambda m: rs.attribute(m, clean(m), corrupt(m)).values,
    "knock-out": knocked_out,
    "surgery": operated,
    "weights": reweighted,
    "generate": generated,
    "inspect": inspected,
    "rule zero": under(lambda _: "zero", HEAD),
    "rule mean": under(lambda _: "mean", HEAD),
    "rule resample": under(lambda _: "resample", HEAD),
    "rule transplant": under(lambda _: "transplant"),
    "rule Zero": under(lambda _: Zero()),
    "rule Put": under(lambda m: Put(vector(m))),
    "rule Add": under(lambda m: Add(vector(m))),
    "rule Remove": under(lambda m: Remove(vector(m, 2))),
    "rule Within": under(lambda m: TransplantWithin(corrupt(m), vector(m, 2))),
    "rule Keep": under(lambda _: Keep(0.5)),
    "rule Keep drawn": under(lambda _: Keep(0.5, seed=1)),
    "rule Sharpen": under(lambda _: Sharpen(3.0), PATTERN),
    "rule Permute": under(lambda _: Permute([1, 0, 2, 3, 4]), PATTERN),
}


def here() -> LanguageModel:
    return word_model([*TEXTS, EXTRA])


def there(place: torch.device) -> LanguageModel:
    model = here()
    return wrap(model.module.to(place), model.tokenizer)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_the_same(name: str) -> None:
    on_the_cpu = VIEWS[name](here())
    with standin.device() as place:
        model = there(place)
        assert model.device.type == standin.NAME
        found = VIEWS[name](model).cpu()
    assert on_the_cpu.isfinite().all()
    torch.testing.assert_close(found, on_the_cpu, rtol=1e-4, atol=1e-5)


def scanned(model: LanguageModel, folder: Path) -> dict[str, pd.DataFrame]:
    signals = ("lens", "attention", "alignment", "patching", "attribution")
    found = rs.scan(model, ROWS, folder, (*signals, "resid_post:1"))
    files = sorted(found.path.rglob("*.parquet"))
    return {str(f.relative_to(folder)): pd.read_parquet(f) for f in files}


def test_a_scan_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "DEVICES", (*device.DEVICES, standin.NAME))
    tables = scanned(here(), tmp_path / "cpu")
    with standin.device() as place:
        found = scanned(there(place), tmp_path / "there")
    assert found.keys() == tables.keys()
    for name, table in tables.items():
        pd.testing.assert_frame_equal(found[name], table, rtol=1e-4, atol=1e-5)
