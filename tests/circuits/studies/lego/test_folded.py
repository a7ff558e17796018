"""What is read off folded models, and what edits do: known circuits, absent ones."""

import copy
import math

import pytest
import torch

from circuits.claims import NotTested
from circuits.interventions.edit import Put
from circuits.lab import Lab
from circuits.studies.lego.lab import LegoLab, folded
from circuits.studies.lego.lab.models import Specimen, targets, uniform
from circuits.studies.lego.law import diluted_error, irrelevant, longest, sharpness
from tests.lego_models import N_VARIABLES, sentences, wired
from trained.lego.task import rollout
from trained.task import Batch


def test_irrelevant_clauses_are_counted() -> None:
    # Length 3: predicates 3, answers l + 1, minus the two targets.
    assert irrelevant(3).tolist() == [2, 3, 4]


def test_the_law_by_hand() -> None:
    assert diluted_error(2.0, irrelevant(2)) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert diluted_error(0.0, irrelevant(5)) == 1
    assert longest(100.0, 0.5) == 51
    assert sharpness(0.0, irrelevant(5)) == math.inf
    assert sharpness(1.0, irrelevant(5)) == 0.0


@pytest.mark.parametrize("length", [2, 5, 40])
@pytest.mark.parametrize("k", [0.5, 20.0, 3000.0])
def test_fitting_inverts_the_law(length: int, k: float) -> None:
    counts = irrelevant(length)
    assert sharpness(diluted_error(k, counts), counts) == pytest.approx(k, rel=1e-6)


@pytest.mark.parametrize("length", [3, 9])
def test_a_wired_model_obeys_the_law_and_an_uneven_one_does_not(length: int) -> None:
    specimen = Specimen("C3", 0, wired(score=2.0))
    expected = diluted_error(2 * math.exp(2.0), irrelevant(length))
    batch = specimen.sentences(length, 20)
    assert specimen.error(batch) == pytest.approx(expected, rel=1e-5)
    source = torch.Generator().manual_seed(0)
    uneven = specimen.with_tables(
        Q43=lambda q: q + torch.randn(q.shape, generator=source)
    )
    assert abs(uneven.error(batch) - expected) > 1e-3


def test_the_laws_prediction_and_where_it_must_fail(
    bare: LegoLab, weak: Specimen
) -> None:
    assert bare.law_error([weak])[0] < 1e-4
    assert bare.law_error([weak], growing=True)[0] > 0.05
    assert bare.sharpness([weak])[0] == pytest.approx(2 * math.exp(2.8), rel=1e-4)


def test_all_is_what_a_rollout_gives(weak: Specimen) -> None:
    batch = sentences(10, 150, seed=7)
    seen = weak.marks(batch)
    own = rollout(weak.model, batch, weak.model.vocabulary)
    assert seen.all == float((own.values == batch.values).all(1).double().mean())
    assert 0 < seen.all < 1
    assert seen.step > seen.all


def test_parts_are_the_whole(weak: Specimen) -> None:
    batch = sentences(9, 30)
    parts = weak.batches(batch, most=400)
    assert len(parts) > 5
    (whole,) = weak.batches(batch)
    assert torch.equal(torch.cat([part.tokens for part in parts]), whole.tokens)
    roles = torch.cat([targets(part) for part in parts])
    assert torch.equal(roles, targets(batch))


def test_targets_share_the_querys_variable(perfect: Specimen) -> None:
    batch = perfect.sentences(6, 40, order="permuted")
    rows = perfect.rows(batch)
    found = rows.gather(-1, targets(batch)).sum(-1)
    torch.testing.assert_close(found, torch.ones_like(found))
    assert perfect.mass(batch) == pytest.approx(1, abs=1e-5)
    assert perfect.marks(batch).all == 1


def test_mass_and_gap(bare: LegoLab, perfect: Specimen) -> None:
    assert bare.mass([perfect])[0] == pytest.approx(1, abs=1e-5)
    even = sum(2 / (4 + step + 1) for step in range(4)) / 4
    blind = uniform(perfect)
    assert bare.mass([blind])[0] == pytest.approx(even, rel=1e-5)
    assert bare.gap([blind])[0] == pytest.approx(0, abs=1e-6)
    tilted = perfect.with_tables(Q43=lambda q: q / 2)
    assert bare.gap([tilted])[0] > 0.9


def test_lookup_and_its_shuffle(bare: LegoLab, perfect: Specimen) -> None:
    assert bare.lookup([perfect])[0] == pytest.approx(30, rel=1e-5)
    # A shuffle keeps about one diagonal entry in twelve.
    assert bare.shuffled_lookup([perfect])[0] < 10


def test_learned_and_far(bare: LegoLab, perfect: Specimen, weak: Specimen) -> None:
    blind = uniform(perfect)
    assert bare.learned([perfect, blind]) == [1, 0]
    assert bare.reach([perfect, blind]) == [10, 0]
    assert bare.farthest([perfect]) == [1]
    assert bare.farthest([weak])[0] < bare.far_step([weak])[0] < 1


def test_solved_length_and_crossing_by_hand() -> None:
    assert folded.solved_length({5: 1.0, 10: 0.9, 20: 0.89}, 0.9) == 10
    assert folded.solved_length({5: 0.5, 10: 1.0}, 0.9) == 0
    # Half way down from 1.0 to 0.8 on the way from 10 to 40.
    falling = {5: 1.0, 10: 1.0, 40: 0.8}
    assert folded.crossing(falling, 0.9) == pytest.approx(20)
    assert folded.crossing({5: 1.0, 10: 1.0}, 0.9) == 10
    assert folded.crossing({5: 0.2, 10: 0.0}, 0.9) == 5
    assert folded.bisected(lambda x: x < 0.3) == pytest.approx(0.3, abs=0.01)


def test_half_of_the_variables(bare: LegoLab, perfect: Specimen) -> None:
    assert bare.levelled([perfect], there=False) == [1]
    assert bare.levelled([perfect], there=True)[0] < 0.75
    assert folded.half_of_variables(perfect).sum() == N_VARIABLES // 2
    # The model itself is left alone.
    assert bare.lookup([perfect])[0] == pytest.approx(30)


def test_where_there_is_no_circuit_levelling_changes_nothing(
    bare: LegoLab, silent: Specimen
) -> None:
    before = silent.marks(bare.short(silent)).value.double()
    gone = folded.half_of_variables(silent)
    hit = gone[bare.short(silent).variables[:, :-1]]
    assert bare.levelled([silent], there=True)[0] == float(before[hit].mean())


def test_sharpening_repairs_diluted_attention(
    bare: LegoLab, weak: Specimen, silent: Specimen
) -> None:
    assert bare.sharper([weak], 2.0) == [1]
    assert bare.sharper([weak], 0.5)[0] < bare.farthest([weak])[0]
    assert bare.sharper([silent], 0.5) == bare.farthest([silent])
    # An edit that finds nothing to change has no effect.
    assert bare.sharper([weak], 1.0) == bare.farthest([weak])


def put(specimen: Specimen, error: float, onto: str = "all") -> torch.Tensor:
    (batch,) = specimen.batches(sentences(2, 1))
    rule = folded.misplaced(error, onto)(batch)
    assert isinstance(rule, Put)
    return rule.value[0, 0]


def test_a_dose_by_hand(weak: Specimen) -> None:
    # Query 1 sees p1, p2, a0, a1; its targets are p2 and a1.
    torch.testing.assert_close(put(weak, 0.4)[1], torch.tensor([0.2, 0.3, 0.2, 0.3]))
    rows = put(weak, 0.4, "answers")
    torch.testing.assert_close(rows[1], torch.tensor([0.0, 0.3, 0.4, 0.3]))
    # Query 0 sees no other answer: nothing to leak onto.
    torch.testing.assert_close(rows[0], torch.tensor([0.5, 0.0, 0.5, 0.0]))


@pytest.mark.parametrize("onto", ["all", "predicates", "answers"])
def test_doses_are_distributions_over_what_is_visible(
    weak: Specimen, onto: str
) -> None:
    batch = weak.sentences(4, 6, order="permuted")
    rows = weak.rows(batch, folded.misplaced(0.3, onto))
    torch.testing.assert_close(rows.sum(-1), torch.ones(6, 4))
    assert (rows >= 0).all()
    assert not rows[:, :, 4:][:, torch.ones(4, 4).triu(1).bool()].any()
    assert weak.error(batch, folded.misplaced(0.3)) == pytest.approx(0.3, abs=1e-6)


def test_the_tolerated_dose_of_the_wired_model(
    bare: LegoLab, weak: Specimen, perfect: Specimen
) -> None:
    # A pair's neuron fires while (1 - eps) / 2 * 2 * 2 > 1.5, helped by the leak.
    assert 0.2 < bare.tolerated(weak) < 0.5
    assert bare.dosed([weak], 0.1) == [1]
    assert bare.dosed([weak], 0.9)[0] < 0.75
    # Attention that never dilutes is predicted to reach the longest test, as it does.
    assert bare.prediction_error([perfect], [perfect]) == [0]
    assert bare.prediction_error([perfect], [uniform(perfect)])[0] > 0.585


def test_leaks_of_a_silent_model_make_no_difference(
    bare: LegoLab, silent: Specimen, weak: Specimen
) -> None:
    assert bare.leak([silent], late=True) == [0]
    assert bare.leak([weak], late=False) != [0]


def test_exchanged_attention(perfect: Specimen, weak: Specimen) -> None:
    batch = sentences(10, 100)
    swapped = folded.with_attention(weak, perfect)
    assert weak.marks(batch).all < 0.9
    assert swapped.marks(batch).all == 1
    assert folded.with_attention(perfect, weak).marks(batch).all < 0.9
    assert folded.with_attention(weak, weak) is weak


def test_labels_of_a_perfect_and_of_a_weak_annotator(
    bare: LegoLab, perfect: Specimen, weak: Specimen
) -> None:
    assert bare.labels([perfect], 10) == [1]
    assert bare.labels([weak], 10)[0] < 1


def test_examples_of_an_arm_are_batches_with_roles(lab: LegoLab) -> None:
    for arm in ("C3", "S3-self/base", "C3-standard-plain", "theory-S3"):
        batch = lab.examples(arm, 1)
        assert isinstance(batch, Batch)
        assert set(batch.roles) == {"predicate", "answer"}
        pattern = lab.models(arm).pattern()
        assert pattern.axes == ("seed", "head", "query", "key")
    assert isinstance(lab, Lab)


def test_the_tables_of_a_transformer_are_its_scores(lab: LegoLab) -> None:
    model = copy.deepcopy(lab.model("C3-standard-plain", 0))
    specimen = Specimen("C3", 0, model)
    sentences = specimen.sentences(3, 4)
    with torch.no_grad():
        # Without values, the folded product is all that a query has to go by.
        model.W_E[model.vocabulary.n_variables :].zero_()
        model.block.attn.W_K[:, : 2 * 8].zero_()
        batch = sentences.batch(model.vocabulary)
        _, seen = model.run_with_cache(batch.tokens)
    q43, q44 = specimen.tables
    x = sentences.variables
    scores = seen["blocks.0.attn.hook_attn_scores"]
    torch.testing.assert_close(
        scores[:, :, 1, 2], q43[:, x[:, 1], x[:, 2]].T, atol=1e-5, rtol=1e-4
    )
    torch.testing.assert_close(
        scores[:, :, 1, 3], q44[:, x[:, 1], x[:, 0]].T, atol=1e-5, rtol=1e-4
    )


def test_what_is_added_to_scores_is_added_to_tables(weak: Specimen) -> None:
    batch = weak.sentences(5, 10)
    change = torch.randn(2, 2, N_VARIABLES, N_VARIABLES) * 0.5
    edited = weak.with_tables(Q43=lambda q: q + change[0], Q44=lambda q: q + change[1])
    torch.testing.assert_close(
        weak.rows(batch, weak.shifted(change)), edited.rows(batch)
    )


def test_bands_and_the_gate(bare: LegoLab, perfect: Specimen) -> None:
    assert bare.banded([perfect]) == [1]
    assert bare.banded([uniform(perfect)])[0] < 1
    assert perfect.loss(bare.short(perfect)) < uniform(perfect).loss(
        bare.short(perfect)
    )


def test_a_lab_with_other_models(lab: LegoLab, perfect: Specimen) -> None:
    other = lab.with_models(lambda arm, *_: perfect.model if arm == "C3" else None)
    assert other.model("C3", 1) is perfect.model
    assert other.model("S3", 1) is not perfect.model
    assert not other.untrained().folded("C3")[0].tables.any()
    with pytest.raises(NotTested, match="no course of training"):
        other.metrics("C3")
