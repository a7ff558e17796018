"""While a model writes its own answers, it looks at the clause that matters."""

import math

import pytest
import torch

import reasonscope as rs
from circuits.studies.lego.lab.models import Specimen
from circuits.studies.lego.lab.rollouts import found_clauses, rollout_mass
from tests.lego_models import sentences, wired
from trained.lego.task import rollout


def test_a_wired_model_finds_the_clause_at_every_step() -> None:
    specimen, several = Specimen("C3", 0, wired()), sentences(6)
    written, mass = rollout_mass(specimen, several)
    assert torch.equal(written.values, several.values)
    assert found_clauses(specimen, several).all()
    assert mass.shape == (20, 6, 6)
    # A half is on the predicate that is due, a half on the answer before.
    due = mass.gather(-1, several.places[..., None])[..., 0]
    torch.testing.assert_close(due, torch.full_like(due, 0.5))


def test_the_mass_of_weak_scores_worked_out_by_hand() -> None:
    """Two targets with odds e^2, and of 3 predicates and 1 answer 2 others."""
    specimen = Specimen("C3", 0, wired(score=2.0))
    _, mass = rollout_mass(specimen, sentences(3))
    odds = math.exp(2.0)
    expected = torch.full((20, 3), 1 / (2 * odds + 2))
    expected[:, 0] = odds / (2 * odds + 2)
    torch.testing.assert_close(mass[:, 0], expected)


def test_what_is_seen_is_what_one_pass_over_the_answers_shows() -> None:
    specimen = Specimen("C3", 0, wired(score=4.0))
    several = sentences(5)
    written, mass = rollout_mass(specimen, several)
    plain = rollout(specimen.model, several, specimen.model.vocabulary)
    assert torch.equal(written.values, plain.values)
    torch.testing.assert_close(mass, specimen.rows(written)[..., :5])


@pytest.mark.parametrize("kind", ["folded", "standard"])
def test_shipped_models_find_it_and_untrained_ones_do_not(kind: str) -> None:
    lab = rs.load("lego")
    assert hasattr(lab, "folded")
    for trained, own in ((True, lab), (False, lab.untrained())):
        several = own.folded("C6") if kind == "folded" else own.standard("C3", "plain")
        for specimen in several[:2]:
            drawn = specimen.sentences(5, 64, order="permuted")
            found = found_clauses(specimen, drawn).double().mean(0)
            if trained:
                assert found.tolist() == [1.0] * 5
            else:
                # Chance is one in five, and less once it writes nonsense.
                assert float(found.max()) < 0.5
