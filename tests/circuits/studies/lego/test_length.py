"""L*, crossings and matched comparisons by hand; the identity behind `all`."""

import math

import pytest

from circuits.studies.lego.length import (
    crossing,
    log_ratios,
    matched_gap,
    solved_length,
)
from circuits.studies.lego.reading import Marks, marks, parts
from circuits.studies.lego.selftrain import label_accuracy
from circuits.studies.lego.specimen import Specimen
from tests.lego_models import sentences
from trained.lego.answers import rollout


def test_solved_length_is_the_largest_solved() -> None:
    assert solved_length({5: 1.0, 10: 0.9, 20: 0.89}) == 10
    assert solved_length({5: 0.5}) == 0


def test_crossing_by_hand() -> None:
    # Half way down from 1.0 to 0.8 on the way from 10 to 40.
    assert crossing({5: 1.0, 10: 1.0, 40: 0.8}) == pytest.approx(20)
    assert crossing({5: 1.0, 10: 1.0}) == 10
    assert crossing({5: 0.2, 10: 0.0}) == 5


def test_log_ratios() -> None:
    assert log_ratios([80.0, 20.0], [20.0, 40.0]) == [2, -1]


def test_matched_gap_by_hand() -> None:
    high, low = [(0.0, 4.0), (1.0, 2.0)], [(0.0, 1.0), (1.0, 1.0)]
    assert matched_gap(high, low) == pytest.approx(2)
    assert matched_gap(low, high) == pytest.approx(-2)
    assert matched_gap(high, high) == 0
    assert math.isnan(matched_gap(high, [(3.0, 1.0), (4.0, 1.0)]))


def test_all_is_what_a_rollout_gives(weak: Specimen) -> None:
    batch = sentences(10, 150, seed=7)
    seen = marks(weak, batch)
    own = rollout(weak.model, batch, weak.model.vocabulary)
    assert seen.all == float((own.values == batch.values).all(1).double().mean())
    assert 0 < seen.all < 1
    assert seen.step > seen.all


def test_marks_do_not_depend_on_the_parts(
    weak: Specimen, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = sentences(9, 30)
    whole = marks(weak, batch)
    monkeypatch.setattr("circuits.studies.lego.reading.AT_ONCE", 400)
    assert len(parts(batch)) > 5
    pieces = marks(weak, batch)
    assert isinstance(pieces, Marks)
    assert pieces.value.equal(whole.value)
    assert pieces.variable.equal(whole.variable)


def test_labels_of_a_perfect_and_of_a_weak_annotator(
    perfect: Specimen, weak: Specimen
) -> None:
    assert label_accuracy(perfect, 10) == 1
    assert label_accuracy(weak, 10) < 1
