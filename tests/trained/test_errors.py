"""The line for a wrong name says what may have been meant."""

import pytest

from trained.errors import unknown

MANY = [f"lego.conc.leaf{number}" for number in range(20)] + ["lego.conc.phases"]


@pytest.mark.parametrize("given", ["conc.phases", "phases", "lego.conc.fases"])
def test_among_many_choices_the_nearest_is_named(given: str) -> None:
    said = str(unknown("claim", given, MANY))
    assert f"'{given}' (did you mean 'lego.conc.phases'?); choose from: lego" in said


def test_what_resembles_nothing_and_few_choices_get_no_hint() -> None:
    for given, valid in (("xyz", MANY), ("recal", ["recall", "lego"])):
        choices = ", ".join(valid)
        expected = f"unknown claim '{given}'; choose from: {choices}"
        assert str(unknown("claim", given, valid)) == expected
