"""Impossible requests are refused in one line; groups decide what is compared."""

import json
from pathlib import Path

import pytest

from trained.config import as_dict, from_dict, override
from trained.errors import BadInput
from trained.lego.config import Config
from trained.lego.presets import PRESETS, QUICK


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lengths=5,60", "length 60: choose 2 to 59"),
        ("n_variables=35", "length 40: choose 2 to 34"),
        ("train_length=1", "length 1: choose 2 to 59"),
        ("lengths=1", "length 1: choose 2 to 59"),
        ("lengths=", "lengths is empty"),
        ("lengths=10,5", "must be rising"),
        ("groups=Q8", "unknown group action"),
        ("groups=table:0.1.2/1.2.0", "not a group action"),
        ("groups=C6,C6", "one twice"),
        ("groups=A2", "moves no value"),
        ("extra_groups=C6", "already among groups"),
        ("self_training.lengths=5,10", "above train_length"),
        ("folded.steps=123", "choose one of folded.budgets"),
        ("folded.budgets=", "folded.budgets is empty"),
        ("folded.lr=0", "must be positive"),
        ("n_heads=0", "at least 1"),
        ("folded.d_mlp=0", "at least 1"),
        ("folded.masked_steps=-1", "at least 0"),
        ("standard.variants=plain,plain", "one twice"),
        ("standard.batch=20000", "at most n_sentences"),
        ("standard.variants=huge", "unknown value for standard.variants"),
        ("theory.length=60", "theory.length=60: choose 10 to 59"),
        ("standard.rounds=20,10", "must be rising"),
        ("standard.rounds=48", "below standard.n_variables=48"),
        ("theory.grid=60,40", "must be rising"),
        ("theory.attention.rounds=5", "its test at length 128 needs"),
        ("theory.features.value_steps=3", "at least 40"),
        ("theory.groups=generators:1.0.2", "leads from any value to any"),
    ],
)
def test_impossible_requests(change: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        override(QUICK, ["groups=C6,S5", change])
    assert "\n" not in str(refused.value)


def test_the_first_of_each_kind_is_compared() -> None:
    assert (Config().simple, Config().symmetric) == ("C6", "S5")
    assert (QUICK.simple, QUICK.symmetric, QUICK.self_group) == (None, None, None)
    several = override(QUICK, ["groups=S4,C7,S3reg"])
    assert (several.simple, several.symmetric) == ("C7", "S4")
    alone = override(QUICK, ["groups=C7"])
    assert (alone.simple, alone.symmetric) == ("C7", None)


def test_a_stored_configuration_needs_no_file(tmp_path: Path) -> None:
    file = tmp_path / "c3.json"
    file.write_text(json.dumps([[0, 1, 2], [1, 2, 0], [2, 0, 1]]))
    config = override(QUICK, [f"groups=file:{file}"])
    file.unlink()
    assert from_dict(Config, as_dict(config)) == config
    assert config.simple == "table:0.1.2/1.2.0/2.0.1"


def test_presets_are_possible_and_named() -> None:
    assert set(PRESETS) == {"quick", "paper", "zoo"}
    assert PRESETS["paper"].config.standard.epochs == 300
    assert PRESETS["paper"].config.lengths[-1] == 160
