"""Configurations to and from the command line and JSON."""

import json
import math
from dataclasses import FrozenInstanceError, dataclass

import pytest

from tests.toy import Config
from trained.config import as_dict, from_dict, meanings, override, require
from trained.errors import BadInput, unknown


@pytest.mark.parametrize(
    ("assignment", "field", "value"),
    [
        ("width=8", "width", 8),
        (" width = 8 ", "width", 8),
        ("rate=1e-3", "rate", 0.001),
        ("rate=2", "rate", 2.0),
        ("tags=x", "tags", ("x",)),
        ("tags=x,y", "tags", ("x", "y")),
        ("tags=x, y", "tags", ("x", "y")),
        ("tags=", "tags", ()),
        ("fast=True", "fast", True),
        ("fast=false", "fast", False),
        ("limit=3", "limit", 3),
        ("limit=none", "limit", None),
        ("rule=gd", "rule", "gd"),
    ],
)
def test_an_assignment_sets_a_field_with_its_type(
    assignment: str, field: str, value: object
) -> None:
    changed = getattr(override(Config(), [assignment]), field)
    assert changed == value
    assert type(changed) is type(value)


def test_assignments_add_up_and_the_last_one_wins() -> None:
    config = override(Config(), ["width=8", "steps=2", "width=9"])
    assert config == Config(width=9, steps=2)


def test_no_assignment_changes_nothing() -> None:
    assert override(Config(), []) == Config()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("width", "'width' is not of the form key=value"),
        ("depth=3", "unknown config key 'depth'; choose from: width, steps, rate"),
        ("width=wide", "width=wide: expected a whole number"),
        ("width=2.5", "width=2.5: expected a whole number"),
        ("width=", "width=: expected a whole number"),
        ("rate=fast", "rate=fast: expected a number"),
        ("fast=maybe", "fast=maybe: expected true or false"),
        ("limit=few", "limit=few: expected a whole number"),
        ("rule=sgd", "unknown value for rule 'sgd'; choose from: adam, gd"),
        ("width=0", "width=0: choose 1 to 99"),
    ],
)
def test_a_bad_assignment_is_one_line_that_names_it(
    assignment: str, message: str
) -> None:
    with pytest.raises(BadInput) as error:
        override(Config(), [assignment])
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_configuration_survives_json() -> None:
    config = Config(width=7, tags=("x", "y"), limit=2)
    assert from_dict(Config, json.loads(json.dumps(as_dict(config)))) == config


def test_a_stored_configuration_with_a_foreign_key_is_refused() -> None:
    with pytest.raises(BadInput, match="unknown config key 'depth'"):
        from_dict(Config, {"depth": 3})


def test_a_stored_configuration_with_impossible_sizes_is_refused() -> None:
    with pytest.raises(BadInput, match="width=100"):
        from_dict(Config, {"width": 100})


@pytest.mark.parametrize(
    "mapping",
    [
        {"width": "wide"},
        {"width": None},
        {"width": True},
        {"width": 7.0},
        {"width": math.nan},
        {"rate": "1"},
        {"rate": False},
        {"tags": 3},
        {"tags": "xy"},
        {"tags": ["x", 3]},
        {"fast": 1},
        {"limit": "3"},
        {"rule": ["gd"]},
    ],
)
def test_a_stored_configuration_with_a_wrong_type_is_refused(
    mapping: dict[str, object],
) -> None:
    with pytest.raises(BadInput, match=next(iter(mapping))):
        from_dict(Config, mapping)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().width = 5  # type: ignore[misc]


@dataclass(frozen=True)
class Narrow:
    width: int = 1
    """Neurons."""


@dataclass(frozen=True)
class Deep(Narrow):
    depth: int = 1
    """Layers."""


def test_the_meaning_of_an_inherited_key_is_known() -> None:
    assert meanings(Deep()) == {"width": "Neurons.", "depth": "Layers."}


def test_require_raises_only_if_the_condition_fails() -> None:
    require(True, "fine")
    with pytest.raises(BadInput, match="not fine"):
        require(False, "not fine")


def test_unknown_names_the_value_and_the_valid_ones() -> None:
    assert str(unknown("site", "x", ["a", 2])) == (
        "unknown site 'x'; choose from: a, 2"
    )
    assert str(unknown("site", "x", "anything")).endswith("choose from: anything")
