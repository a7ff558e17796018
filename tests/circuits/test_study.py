"""Studies are found by slug, each part in its place."""

from dataclasses import is_dataclass

import pytest

from circuits.study import STUDIES, find
from tests import toy
from trained.config import as_dict
from trained.errors import BadInput


def test_an_unknown_study_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(BadInput, match="unknown study 'chess'; choose from: recall"):
        find("chess")


@pytest.mark.usefixtures("toy_studies")
def test_an_unknown_preset_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(BadInput, match="unknown preset 'huge'; choose from: quick, pa"):
        find("toy").preset("huge")


@pytest.mark.usefixtures("toy_studies")
def test_the_parts_of_a_study_are_found_in_their_places() -> None:
    study = find("toy")
    config = study.preset("paper").config
    assert study.title == "The toy paper"
    assert config == toy.Config(steps=5)
    assert study.config(as_dict(config)) == config
    assert [arm.name for arm in study.arms(config)] == ["net", "twin"]
    assert [claim.id for claim in study.claims(config)] == ["toy.size", "toy.open"]
    assert list(study.figures) == ["loss"]


@pytest.mark.parametrize("slug", STUDIES)
def test_every_study_has_both_presets_and_its_claims_carry_its_name(slug: str) -> None:
    study = find(slug)
    assert study.title
    assert {"quick", "paper"} <= study.presets.keys()
    for preset in study.presets.values():
        assert preset.n_seeds >= 1
        assert preset.cost
        assert is_dataclass(preset.config)
        assert study.config(as_dict(preset.config)) == preset.config
        ids = [claim.id for claim in study.claims(preset.config)]
        assert ids
        assert len(set(ids)) == len(ids)
        assert all(name.startswith(f"{slug}.") for name in ids)


@pytest.mark.parametrize("slug", STUDIES)
def test_the_arms_of_a_study_have_names_of_their_own(slug: str) -> None:
    study = find(slug)
    for preset in study.presets.values():
        names = [arm.name for arm in study.arms(preset.config)]
        assert names
        assert len(set(names)) == len(names)
