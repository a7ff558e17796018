"""A study is a value; ours are found by slug, anybody else's by reference."""

from dataclasses import is_dataclass, replace

import pytest

from circuits.study import STUDIES, Study, find, first_line, loaded
from tests import toy
from trained.config import as_dict
from trained.errors import BadInput


def test_an_unknown_study_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(BadInput, match="unknown study 'chess'; choose from: recall"):
        find("chess")


def test_a_study_of_somebody_elses_is_found_by_reference() -> None:
    assert find("tests.toy:STUDY") is toy.STUDY


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tests.toys:STUDY", "No module named 'tests.toys'"),
        ("tests.toy:STUDIES", "has no attribute 'STUDIES'"),
        ("tests.toy:SEEDS", "is a tuple, not a Study"),
        (":STUDY", "Empty module name"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(
    reference: str, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        find(reference)


def test_an_unknown_preset_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(BadInput, match="unknown preset 'huge'; choose from: quick, pa"):
        toy.STUDY.preset("huge")


def test_a_study_without_a_part_on_language_models_says_so() -> None:
    with pytest.raises(BadInput, match="study toy has no part on language models"):
        toy.STUDY.language_preset("quick")


def test_a_study_is_the_sum_of_its_parts() -> None:
    config = toy.STUDY.preset("paper").config
    assert config == toy.Config(steps=5)
    assert toy.STUDY.config_of(as_dict(config)) == config
    assert [arm.name for arm in toy.STUDY.arms(config)] == ["net", "twin"]
    assert [c.id for c in toy.STUDY.claims_at(config)] == ["toy.size", "toy.negative"]
    assert list(toy.STUDY.figures) == ["loss"]


def test_claims_with_a_foreign_name_or_twice_are_a_mistake() -> None:
    for claims in ([toy.SIZE, toy.SIZE], [replace(toy.SIZE, id="boy.size")]):
        wrong = replace(toy.STUDY, claims=lambda _config, claims=claims: claims)
        with pytest.raises(ValueError, match="foreign claims, or one twice"):
            wrong.claims_at(toy.Config())


@pytest.fixture(params=STUDIES)
def ours(request: pytest.FixtureRequest) -> Study:
    return find(request.param)


def test_every_study_has_both_presets_and_claims_at_each(ours: Study) -> None:
    assert ours.title
    assert {"quick", "paper"} <= ours.presets.keys()
    for preset in ours.presets.values():
        assert preset.n_seeds >= 1
        assert preset.cost
        assert is_dataclass(preset.config)
        assert ours.config_of(as_dict(preset.config)) == preset.config
        claims = ours.claims_at(preset.config)
        assert all(claim.headline for claim in claims)
        assert any(claim.origin == "paper" for claim in claims)


def test_claims_about_language_models_carry_their_studys_name(ours: Study) -> None:
    settings = ours.language_preset("quick").config
    claims = ours.language_claims(settings)
    assert claims
    assert all(".llm." in claim.id for claim in claims)


def test_what_a_figure_shows_is_read_as_python_would(ours: Study) -> None:
    tables = (ours.figures_part, ours.needs_language().figures_part)
    for part in (part for table in tables for part in table.values()):
        line = first_line(part)
        assert line
        assert line == loaded(part).__doc__.split("\n")[0] == first_line(loaded(part))


def test_the_arms_of_a_study_have_names_of_their_own(ours: Study) -> None:
    for preset in ours.presets.values():
        names = [arm.name for arm in ours.arms(preset.config)]
        assert names
        assert len(set(names)) == len(names)
