"""Configurations that cannot be run are refused in one line."""

import subprocess
import sys

import pytest

from trained.bridge.config import PRESETS, Config
from trained.config import override
from trained.errors import BadInput


@pytest.mark.parametrize(
    "assignment",
    [
        "n_subjects=3",
        "complexity=1",
        "complexity=20",
        "sweep=25",
        "embedding_sweep=",
        "identity=1.5",
        "gammas=1.3",
        "gammas=",
        "weight_decay=-1",
        "d_model=30",
        "n_layers=1",
        "steps=0",
        "lr=0",
        "theory_sizes=2",
        "variants=other",
        "variant_seeds=0",
        "maps=degenerate",
    ],
)
def test_impossible_values_are_refused(assignment: str) -> None:
    with pytest.raises(BadInput) as caught:
        override(Config(), [assignment])
    assert "\n" not in str(caught.value)


def test_values_can_be_set() -> None:
    changed = override(Config(), ["identity=0", "gamma=1.4", "variants=tied,decay"])
    assert (changed.identity, changed.gamma) == (0.0, 1.4)
    assert changed.variants == ("tied", "decay")
    assert override(Config(), ["variants="]).variants == ()


def test_claims_and_presets_need_no_torch() -> None:
    code = (
        "import sys; from circuits.bridge.claims import claims;"
        "from trained.bridge.config import PRESETS;"
        "[claims(preset.config) for preset in PRESETS.values()];"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_both_presets_exist() -> None:
    assert {"quick", "paper"} <= PRESETS.keys()
    assert PRESETS["quick"].n_seeds >= 3
