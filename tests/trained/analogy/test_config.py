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
    assert (config.n_entities, config.d_model) == (100, 512)
    assert (config.gpt_layers, config.gpt_heads, config.gpt_width) == (12, 12, 768)
    assert config.multiplicities == (1, 3, 5)


def test_set_changes_sizes_k_depth_and_curriculum():
    changed = override(
        Config(),
        [
            "n_entities=10",
            "d_model=64",
            "multiplicity=2",
            "multiplicities=2,4",
            "gpt_multiplicities=2",
            "linear_layers=5",
            "gpt_layers=2",
            "curricula=joint,AS_T",
        ],
    )
    assert changed.multiplicities == (2, 4)
    assert changed.curricula == ("joint", "AS_T")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("d_model=100", "n_entities=40, d_model=100"),
        ("curricula=AS", "unknown curriculum 'AS'; choose from: joint, SA, AS_T, AS_E"),
        ("parts=bloc", "unknown part 'bloc'"),
        ("parts=", "at least one part"),
        ("multiplicity=0", "multiplicity=0: at least 1"),
        ("multiplicities=3,1", "ascending"),
        ("gpt_heads=3", "must divide"),
        ("gpt_layers=1", "gpt_layers=1: at least 2"),
        ("linear_width=30", "linear_width=30"),
        ("head_steps=0", "head_steps=0: at least 50"),
    ],
)
def test_impossible_values_are_refused_in_one_line(assignment, message):
    with pytest.raises(BadInput) as caught:
        override(Config(), [assignment])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_claims_and_config_import_no_torch():
    code = (
        "import sys; import circuits.studies.analogy.claims as c;"
        "from trained.analogy.config import PRESETS as P;"
        "[c.claims(p.config) for p in P.values()];"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_k_joins_those_that_are_compared():
    assert override(Config(), ["multiplicity=4"]).block_ks == (1, 3, 4, 5)
    assert override(Config(), ["multiplicity=2"]).gpt_ks == (2, 3)
