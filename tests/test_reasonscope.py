"""The public face: light to import, typed as what it loads."""

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import reasonscope as rs
from tests.ground_truth import GroundTruth
from trained.errors import BadInput
from trained.task import Batch


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_importing_costs_nothing() -> None:
    code = (
        "import sys, reasonscope as rs; dir(rs); ours = {'circuits', 'trained'};"
        "print(sorted({'torch', 'numpy', *ours} & set(sys.modules)), rs.__version__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["[]", version("reasonscope")]


def test_every_name_loads_and_the_types_say_the_same_place() -> None:
    tree = ast.parse(Path(rs.__file__).read_text())
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lazy = {name: home for home, names in rs._HOMES.items() for name in names}
    assert {name: typed[name] for name in lazy} == lazy
    for name in rs.__all__:
        assert callable(getattr(rs, name)), name
    assert sorted(rs.__all__) == rs.__all__
    with pytest.raises(AttributeError, match="no attribute 'telescope'"):
        rs.telescope  # noqa: B018


def test_a_run_is_trained_judged_in_part_and_loaded_again(in_folder: Path) -> None:
    done = rs.confirm("tests.toy:STUDY", seeds=3, only="toy.size", steps=4)
    assert (done["toy.size"].word, done.config["steps"]) == ("confirmed", 4)
    assert done.run is not None
    assert done.run.path.parent == Path("runs")
    lab = rs.load(in_folder / done.run.path)
    assert [v.claim.id for v in lab.confirm("toy.*").verdicts] == [
        "toy.size",
        "toy.negative",
    ]
    group = rs.confirm("tests.toy:STUDY", seeds=(4,), **{"head.depth": 2})
    assert (group.seeds, group.config["head"]) == ((4,), {"depth": 2})


def test_a_shipped_run_is_loaded_by_name() -> None:
    assert rs.load("lego").run.study == "lego"
    with pytest.raises(rs.BadInput, match="unknown run or zoo run 'chess'"):
        rs.load("chess")


def test_the_studies_have_titles() -> None:
    assert rs.list_studies().keys() == {
        "recall",
        "analogy",
        "bridge",
        "symbols",
        "lego",
    }


def test_small_models_take_the_same_calls(two_hop: GroundTruth) -> None:
    prompts = Batch(two_hop.tokens, two_hop.targets)
    with rs.record(two_hop.model, [rs.Site("pattern", 1)]) as seen:
        two_hop.model(prompts.tokens)
    rows = seen[rs.Site("pattern", 1)][:, :, -1, 1].mean(0)
    torch.testing.assert_close(
        rs.attention(two_hop.model, prompts, to=1).values[1].float(), rows
    )
    with pytest.raises(rs.BadInput, match="unknown role 'France'"):
        rs.attention(two_hop.model, prompts, to="France")
    assert rs.BadInput is BadInput
