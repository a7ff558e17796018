"""The experiment's quantities: on a planted transformer, and at a tiny size."""

import math

import pytest
import torch

from circuits.claims import NotTested
from circuits.studies.lego.lab import LegoLab
from circuits.studies.lego.lab.experiment import lengths_to
from circuits.studies.lego.lab.models import Specimen, uniform
from circuits.studies.lego.substitutes import standard_circuit
from tests.lego_models import N_VARIABLES


@pytest.fixture
def planted() -> Specimen:
    model = standard_circuit("C3", N_VARIABLES).requires_grad_(False).eval()
    return Specimen("C3", 0, model)


def test_lengths_are_a_factor_apart() -> None:
    assert lengths_to(5, 160) == [5, 7, 10, 14, 20, 28, 40, 57, 80, 113, 160]
    assert lengths_to(5, 5) == [5]
    assert lengths_to(4, 11) == [4, 6, 8, 11]


def test_where_half_of_the_chains_are_right(
    bare: LegoLab, perfect: Specimen, weak: Specimen
) -> None:
    assert bare.crossings([perfect]) == [10]
    found = bare.crossings([weak])[0]
    assert 4 < found < 10
    before, after = (bare.solved_at([weak], n)[0] for n in (5, 10))
    assert before > 0.5 > after
    # Without attention not even the training length is solved.
    assert bare.crossings([uniform(perfect)]) == [4]


def test_the_planted_transformer_is_converged(bare: LegoLab, planted: Specimen) -> None:
    assert bare.learned([planted]) == [1]
    assert bare.reordered([planted], "all") == [1]
    assert bare.reordered([planted], "mass")[0] < 1e-4
    assert bare.reordered([planted], "loss") == [0]
    by_place = standard_circuit("C3", N_VARIABLES, by_place=4)
    placed = Specimen("C3", 0, by_place.requires_grad_(False).eval())
    assert bare.learned([placed]) == [1]
    assert bare.reordered([placed], "loss")[0] > 0.5


def test_attention_over_positions_by_hand(bare: LegoLab, weak: Specimen) -> None:
    # Both targets have e^2.8, the 2 L - 2 others of the last query 1.
    own = math.exp(2.8)
    looks = bare.looks(weak, 10)
    assert looks.shape == (2, 10)
    for step in (0, 9):
        expected = own / (2 * own + 9 + step)
        assert looks[:, step].tolist() == pytest.approx([expected] * 2, rel=1e-4)
    drop = bare.drop([weak], 0, 10)[0]
    assert drop == pytest.approx(1 - float(looks[0, -2:].mean() / looks[0, :2].mean()))
    assert bare.falls([weak], 1, 4, 10)[0] > 0
    assert bare.diluted([weak])[0] < 1e-4
    assert bare.diluted([weak], constant=True)[0] > 0.1


def test_scaled_scores(bare: LegoLab, weak: Specimen, perfect: Specimen) -> None:
    assert bare.scaled([weak], 1.25)[0] > 0
    assert bare.scaled([weak], 0.8)[0] < 0
    # What is added at other keys blurs instead.
    assert bare.scaled([weak], 1.25, wrong_keys=True)[0] <= 0
    # What solves the longest chains cannot gain.
    assert len(bare.scaled([weak, perfect], 1.25)) == 1
    with pytest.raises(NotTested, match="longest chains"):
        bare.scaled([perfect], 1.25)


def test_wrong_keys_stay_in_their_block(bare: LegoLab, weak: Specimen) -> None:
    from functools import partial

    from circuits.studies.lego.lab.experiment import misdirected

    del bare
    batch = weak.sentences(6, 5)
    rows = weak.rows(batch, partial(misdirected, weak, 3.0))
    torch.testing.assert_close(rows.sum(-1), torch.ones(5, 6))
    future = torch.ones(6, 6).triu(1).bool()
    assert not rows[:, :, 6:][:, future].any()
    # Of the answers the first query sees one: it stays where it was.
    plain = weak.rows(batch)
    assert (rows[:, 0, 6] > plain[:, 0, 6]).all()


def test_attention_as_blunt_as_anothers(bare: LegoLab, weak: Specimen) -> None:
    blunter = weak.with_tables(Q4x=lambda q: q * 0.8)
    factor = bare._factor(weak, bare.sharpness([blunter])[0])
    assert factor == pytest.approx(0.8, rel=0.03)
    assert bare._factor(weak, bare.sharpness([weak])[0]) == pytest.approx(1, rel=0.03)
    moved = bare.moved([weak], [blunter])[0]
    assert moved == pytest.approx(1, abs=0.3)
    assert bare.moved([], []) == [0.0]


def test_seeds_against_seeds(bare: LegoLab) -> None:
    assert bare.unpaired_logs([8.0, 4.0, 2.0]) == [1]
    assert bare.unpaired_differences([3.0, 1.0, 5.0, 5.0, 9.0]) == [2, 0]
    with pytest.raises(NotTested, match="two seeds"):
        bare.unpaired_logs([1.0])


def test_stages_of_the_tiny_run(lab: LegoLab) -> None:
    rounds = lab.config.standard.rounds
    assert lab.simple == "C3"
    assert lab.symmetric == "S3"
    models = {
        stage: lab.after(stage)[0].model
        for stage in ("all", "gold6", "corrupt", *(f"self{n}" for n in rounds))
    }
    for name, model in models.items():
        assert name == "all" or not torch.equal(model.W_U, models["all"].W_U)
    first = lab.at_epoch("S3", 1)[0].model
    assert not torch.equal(first.W_U, models["all"].W_U)
    assert torch.equal(lab.at_epoch("S3", 2)[0].model.W_U, models["all"].W_U)
    # What is asked for without a step is what the paper's training gave.
    plain = lab.standard("S3", "plain")[0].model
    assert torch.equal(plain.W_U, models["all"].W_U)
    assert all(0 <= v <= 1 for v in lab.label_consistency(6))
    with pytest.raises(NotTested, match="no stage self99"):
        lab.after("self99")
    assert len(lab.shuffled().standard("S3", "plain")) == 1
    with pytest.raises(NotTested, match="nothing of arm S3-standard-plain"):
        lab.shuffled().after("self6")
