import subprocess
import sys

import pytest

from trained.analogy.config import PRESETS, Config
from trained.config import as_dict, from_dict, override
from trained.errors import BadInput


@pytest.mark.parametrize("name", ["quick", "zoo", "paper"])
def test_presets_survive_json(name):
    config = PRESETS[name].config
    assert from_dict(Config, as_dict(config)) == config


def test_the_paper_preset_has_the_papers_sizes():
    config = PRESETS["paper"].config
    assert (config.block.n_entities, config.block.d_model) == (100, 512)
    assert (config.gpt.layers, config.gpt.heads) == (12, 12)
    assert config.gpt.multiplicities == config.block.multiplicities == (1, 3, 5)
    assert config.relu.n_entities == 100


def test_set_changes_sizes_k_depth_and_curriculum():
    changed = override(
        Config(),
        [
            "block.n_entities=10",
            "block.d_model=64",
            "multiplicity=2",
            "block.multiplicities=2,4",
            "gpt.multiplicities=2",
            "linear.layers=5",
            "gpt.layers=2",
            "curricula=joint,AS_T",
        ],
    )
    assert changed.block.multiplicities == (2, 4)
    assert changed.curricula == ("joint", "AS_T")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("block.d_model=100", "block.n_entities=40, block.d_model=100"),
        ("curricula=AS", "unknown curriculum 'AS'; choose from: joint, SA, AS_T, AS_E"),
        ("parts=bloc", "unknown part 'bloc'"),
        ("parts=", "at least one part"),
        ("multiplicity=0", "multiplicity=0: at least 1"),
        ("block.multiplicities=3,1", "ascending"),
        ("gpt.heads=5", "must divide"),
        ("gpt.layers=1", "gpt.layers=1: at least 2"),
        ("linear.width=30", "linear.width=30"),
        ("head.steps=0", "head.steps=0: at least 50"),
        ("block.limit_ks=3", "at least two"),
        ("labelled.width=40", "48 orthonormal inputs"),
        ("labelled.width=50", "must divide labelled.width"),
        ("linear.inputs_per_label=1", "from 2 to 8"),
    ],
)
def test_impossible_values_are_refused_in_one_line(assignment, message):
    with pytest.raises(BadInput) as caught:
        override(Config(), [assignment])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_claims_and_config_import_no_torch():
    code = (
        "import sys; from circuits.studies.analogy import STUDY as s;"
        "[s.claims_at(p.config) for p in s.presets.values()];"
        "[s.language_claims(p.config) for p in s.language.presets.values()];"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_k_joins_those_that_are_compared():
    assert override(Config(), ["multiplicity=4"]).block_ks == (1, 3, 4, 5)
    assert override(Config(), ["multiplicity=2"]).gpt_ks == (2, 3)
