"""Configurations that cannot be run are refused in one line."""

import subprocess
import sys

import pytest

from trained.bridge.config import (
    PRESETS,
    Config,
    direction,
    gpt,
    recipes,
    shown,
)
from trained.config import override
from trained.errors import BadInput


@pytest.mark.parametrize(
    "assignment",
    [
        "n_subjects=3",
        "complexity=1",
        "complexity=20",
        "complexities=25",
        "complexities=2,2",
        "complexities=1",
        "gpt.regimes=small",
        "gpt.regimes=small,standard,small",
        "embedding.steps=0",
        "identity=1.5",
        "gpt.standard_gamma=1.5",
        "gpt.gamma=inf",
        "gpt.gamma=nan",
        "gpt.decay=-1",
        "gpt.decay=1000",
        "gpt.standard_gamma=inf",
        "gpt.d_model=30",
        "gpt.n_layers=1",
        "gpt.steps=0",
        "gpt.lr=0",
        "gpt.max_offset=5",
        "gpt.record_every=0",
        "direction.n_subjects=2",
        "direction.weight_decay=1",
        "direction.steps=8",
        "theory.sizes=2",
        "theory.sizes=",
        "theory.tie_size=1",
        "variants=other",
        "variants=untied,untied",
        "theory.tilts=0",
        "maps=degenerate",
    ],
)
def test_impossible_values_are_refused(assignment: str) -> None:
    with pytest.raises(BadInput) as caught:
        override(Config(), [assignment])
    assert "\n" not in str(caught.value)


def test_values_can_be_set() -> None:
    changed = override(Config(), ["identity=0", "gpt.gamma=1.6", "variants=untied"])
    assert (changed.identity, changed.gpt.gamma) == (0.0, 1.6)
    assert changed.variants == ("untied",)
    assert override(Config(), ["variants="]).variants == ()


def test_claims_and_presets_need_no_torch() -> None:
    code = (
        "import sys; from circuits.studies.bridge import STUDY;"
        "[STUDY.claims_at(p.config) for p in STUDY.presets.values()];"
        "[STUDY.language_claims(p.config) for p in STUDY.language.presets.values()];"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("config", [p.config for p in PRESETS.values()])
def test_recipes_have_names_of_their_own(config: Config) -> None:
    names = [recipe.name for recipe in recipes(config)]
    assert len(set(names)) == len(names)


def test_recipes_are_named_by_their_differences() -> None:
    assert gpt(3, regime="standard").name == "gpt-k3-identity-standard"
    assert shown("none").name == "gpt-k1-none-two-hop"
    assert direction("none", "scaled").name == "direction-k1-none-scaled"


def test_both_presets_exist() -> None:
    assert {"quick", "paper"} <= PRESETS.keys()
    assert PRESETS["quick"].n_seeds >= 3
