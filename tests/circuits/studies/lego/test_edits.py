"""Edits do what they say on a known circuit, keep rows normalised, hide nothing."""

import pytest
import torch

from circuits.studies.lego import edits
from circuits.studies.lego.reading import PatternEdit, marks, patterns
from circuits.studies.lego.specimen import Specimen
from tests.lego_models import sentences

NORMALISED: dict[str, PatternEdit] = {
    "predicate": edits.knocked_out(0),
    "answer": edits.knocked_out(1),
    "other": edits.other_knocked_out,
    "oracle": edits.oracle,
    "misled": edits.misled,
    "sharper": edits.sharpened(1.5),
    "dose": edits.dosed(0.3),
    "onto predicates": edits.dosed(0.3, "predicates"),
    "onto answers": edits.dosed(0.3, "answers"),
    "head": edits.in_head(0, edits.oracle),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_rows_stay_distributions_over_what_is_visible(
    name: str, weak: Specimen
) -> None:
    batch = sentences(4, 6)
    edited = NORMALISED[name](patterns(weak, batch), batch)
    assert edited.shape == (6, 2, 4, 8)
    torch.testing.assert_close(edited.sum(-1), torch.ones(6, 2, 4))
    assert (edited >= 0).all()
    assert not edited[:, :, ~edits.visible(batch)[0]].any()


def test_a_dose_by_hand(weak: Specimen) -> None:
    batch = sentences(2, 1)
    pattern = patterns(weak, batch)
    # Query 1 sees p1, p2, a0, a1; its targets are p2 and a1.
    row = edits.dosed(0.4)(pattern, batch)[0, 0, 1]
    torch.testing.assert_close(row, torch.tensor([0.2, 0.3, 0.2, 0.3]))
    row = edits.dosed(0.4, "answers")(pattern, batch)[0, 0, 1]
    torch.testing.assert_close(row, torch.tensor([0.0, 0.3, 0.4, 0.3]))
    # Query 0 sees no other answer: nothing to leak onto.
    row = edits.dosed(0.4, "answers")(pattern, batch)[0, 0, 0]
    torch.testing.assert_close(row, torch.tensor([0.5, 0.0, 0.5, 0.0]))


def test_sharpening_by_one_changes_nothing(weak: Specimen) -> None:
    batch = sentences(4, 3)
    pattern = patterns(weak, batch)
    torch.testing.assert_close(edits.sharpened(1.0)(pattern, batch), pattern)
    squared = edits.sharpened(2.0)(pattern, batch)
    expected = pattern.square() / pattern.square().sum(-1, keepdim=True)
    torch.testing.assert_close(squared, expected)


def test_the_known_circuit_breaks_and_an_irrelevant_clause_does_not(
    perfect: Specimen,
) -> None:
    batch = sentences(5, 100)
    assert marks(perfect, batch).step == 1
    assert marks(perfect, batch, edits.other_knocked_out).step == 1
    assert marks(perfect, batch, edits.oracle).all == 1
    for broken in (edits.knocked_out(0), edits.knocked_out(1), edits.misled):
        assert marks(perfect, batch, broken).step < 0.75
    assert marks(perfect, batch, edits.knocked_out(0)).variable_step < 0.75
    assert marks(perfect, batch, edits.knocked_out(1)).variable_step == 1
    for part in ("predicates", "answers"):
        assert marks(perfect, batch, edits.only(part)).step < 0.75
    assert marks(perfect, batch).all == 1


def test_where_no_circuit_is_an_edit_does_nothing(perfect: Specimen) -> None:
    silent = perfect.attending(perfect.tables)
    with torch.no_grad():
        silent.folded.block.mlp.W_out.zero_()
    batch = sentences(5, 50)
    before = marks(silent, batch)
    after = marks(silent, batch, edits.knocked_out(0))
    assert torch.equal(before.value, after.value)
    assert marks(silent, batch, edits.oracle).step == before.step


def test_repair_of_diluted_attention(weak: Specimen) -> None:
    batch = sentences(10, 100)
    assert marks(weak, batch).all < 0.9
    assert marks(weak, batch, edits.oracle).all == 1
    assert marks(weak, batch, edits.sharpened(2.0)).all == 1
    assert marks(weak, batch, edits.sharpened(0.5)).all < marks(weak, batch).all
    assert marks(weak, batch, edits.dosed(0.8)).step < 0.75


def test_permuted_predicates_are_followed(perfect: Specimen) -> None:
    batch = perfect.sentences(6, 40, order="permuted")
    assert marks(perfect, batch).all == 1
    assert marks(perfect, batch, edits.oracle).all == 1
    assert marks(perfect, batch, edits.other_knocked_out).all == 1
    assert marks(perfect, batch, edits.knocked_out(0)).step < 0.75


def test_one_head_is_half_of_what_arrives(perfect: Specimen) -> None:
    batch = sentences(4, 30)
    silent = edits.head_silenced(1)(patterns(perfect, batch), batch)
    assert not silent[:, 1].any()
    assert silent[:, 0].any()
    # The wired neurons need both heads.
    assert marks(perfect, batch, edits.head_silenced(0)).step < 0.75
