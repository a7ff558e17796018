"""Quantities on models whose circuit is known, and where it is absent.

The planted models of `substitutes`, whose own tests are in `test_calibration.py`.
"""

import math
from dataclasses import replace

import pytest
import torch

from circuits.interventions.edit import Transplant
from circuits.studies.bridge.lab import half_way
from circuits.studies.bridge.specimen import TrainedEmbedding
from circuits.studies.bridge.states import TrainedGpt
from circuits.studies.bridge.substitutes import SCALE, embedding, gpt
from trained.bridge.config import Config, direction, untied
from trained.bridge.config import embedding as k1_embedding
from trained.bridge.program import Optimum, one_hop_constraints, solve
from trained.bridge.symmetric import Symmetric, solve_symmetric

CONFIG = Config(n_subjects=6)
SIZE = CONFIG.direction.n_subjects


def optimal(*, identity: bool) -> tuple[Symmetric, TrainedEmbedding]:
    """Emb-MLP with the program's solution as its weights."""
    recipe = direction("identity" if identity else "none")
    model = embedding(True, CONFIG, recipe, 0)
    assert model is not None
    solution = solve_symmetric(SIZE, identity=identity)
    return solution, TrainedEmbedding(CONFIG, recipe, 0, model)


def solved(size: int, *, identity: bool) -> Optimum:
    facts = one_hop_constraints(size, 1, identity=identity)
    return Optimum(size, 1, identity, solve(facts))


def wired(*, shared: bool, kappa: int = 1) -> TrainedGpt:
    """The hand-wired GPT, with or without a first-hop state that hop 2 can read."""
    recipe = untied(kappa, "identity" if shared else "none")
    model = gpt("bridge", CONFIG, recipe, 0)
    assert model is not None
    return TrainedGpt(CONFIG, recipe, 0, model)


def test_only_the_shared_state_composes() -> None:
    for kappa in (1, 2):
        found = [wired(shared=shared, kappa=kappa) for shared in (True, False)]
        assert found[0].ood == 1
        assert found[1].ood <= 1 / 3
        # Both hold the code; r1 its token as well, the bridge its token and its place.
        assert found[0].alignment == pytest.approx(6**-0.5, abs=0.05)
        assert found[1].alignment == pytest.approx(0, abs=0.05)
        assert found[0].cosines(0).mean() == pytest.approx(6**-0.5, abs=0.05)


def test_exchanged_states_of_the_known_circuit() -> None:
    model = wired(shared=True)
    assert model.exchanged("bridge") == (1, 0)
    # After one block the subject has been read.
    assert model.exchanged("subject") == (0, 1)
    assert model.other_bridge() == (1, 0)
    assert model.into_second_hop() == (1, 0)
    assert model.own_bridge() == 1
    assert model.averaged("bridge") <= 1 / 2
    assert model.averaged("subject") == 1


def test_exchanged_states_without_the_circuit() -> None:
    model = wired(shared=False)
    assert model.exchanged("bridge").follow <= 1 / 3
    assert model.into_second_hop().follow <= 1 / 3
    # The rescue: its second hop is intact.
    assert model.own_bridge() == 1
    assert model.other_bridge() == (1, 0)


def test_only_a_first_hop_state_is_read_as_a_bridge() -> None:
    """What the leaf `align.usable` compares, on the known circuit."""
    model = wired(shared=True, kappa=3)
    assert model.into_second_hop() == (1, 0)
    assert model.noise_into_second_hop().follow <= 1 / 3
    within, beside = model.span_into_second_hop(), model.random_into_second_hop()
    assert within.follow == 1
    assert beside.follow < within.follow


def test_answers_are_counted() -> None:
    composing, failing = wired(shared=True), wired(shared=False)
    assert composing.ood_hits == (6, 6)
    assert (composing.single_hops, failing.single_hops) == (1, 1)
    assert (composing.bridge_answers, composing.ood) == (0, 1)
    assert failing.ood_hits.hits <= 2


def test_an_edit_that_changes_nothing_has_no_effect() -> None:
    model = wired(shared=True)
    same = Transplant(model.world.two_hop())
    assert model._right_after("bridge", same) == model.ood


def test_only_bridges_with_the_task_are_read() -> None:
    config = replace(CONFIG, identity=0.5)
    model = gpt("bridge", config, untied(), 0)
    assert model is not None
    found = TrainedGpt(config, untied(), 0, model)
    assert int(found.judged.sum()) == 3
    assert (found.ood, found.ood_obj) == (1, 1)
    assert found.uncovered <= 1 / 3


def test_donors_are_other_pairs() -> None:
    model = wired(shared=True)
    assert sorted(model.donors.tolist()) == list(range(6))
    assert (model.donors != torch.arange(6)).all()


def test_the_optimum_composes_only_with_identity() -> None:
    _, shared = optimal(identity=True)
    _, plain = optimal(identity=False)
    assert shared.ood == shared.ood_obj == shared.positive_margins == 1
    assert plain.ood == plain.positive_margins == 0
    assert (shared.omitted_accuracy, plain.omitted_accuracy <= 0.2) == (1, True)
    assert shared.omitted_probability > plain.omitted_probability


def test_a_relabelled_model_follows_its_labels() -> None:
    _, shared = optimal(identity=True)
    assert (shared.permuted.follow, shared.permuted.stay) == (0, 1)


def test_templates_of_the_closed_form() -> None:
    """P = [[1, p], [1/p, 1]] with identity and the unit matrix without."""
    solution, shared = optimal(identity=True)
    p = solution.two_hop_margin
    assert shared.inheritance == pytest.approx(p, abs=1e-4)
    assert shared.bridge_peak == pytest.approx(1, abs=1e-4)
    assert shared.peak == pytest.approx(SCALE, rel=1e-4)
    assert shared.class_lead > 0
    _, plain = optimal(identity=False)
    assert abs(plain.inheritance) < 1e-4
    # Z[a, c] is p I + q J: a row's standard deviation is p / sqrt(N).
    assert shared.unevenness == pytest.approx(p / SIZE**0.5, abs=1e-4)
    assert plain.unevenness < 1e-4
    assert plain.bridge_peak == pytest.approx(0, abs=1e-4)


def test_a_retaught_read_out_reaches_subjects_on_the_bridges_directions() -> None:
    recipe = k1_embedding()
    model = embedding(True, CONFIG, recipe, 0)
    assert model is not None
    shared = TrainedEmbedding(CONFIG, recipe, 0, model)
    assert shared.retaught == (1, 1)
    unrelated = shared.unrelated()
    n = CONFIG.n_subjects
    norms = [x.model.W_E[:n].norm(dim=1) for x in (shared, unrelated)]
    torch.testing.assert_close(*norms)
    assert torch.equal(shared.model.W_E[n:], unrelated.model.W_E[n:])
    assert unrelated.retaught.told == 1
    assert unrelated.retaught.follow <= 1 / 2


def test_only_the_shared_optimum_survives_truncation() -> None:
    assert optimal(identity=True)[1].truncated == pytest.approx(1, abs=1e-4)
    assert optimal(identity=False)[1].truncated < 0.9


def test_directions_of_the_optima() -> None:
    _, shared = optimal(identity=True)
    own, other = (solved(SIZE, identity=x).solution.matrix for x in (True, False))
    assert shared.cosine(own) == pytest.approx(1, abs=1e-5)
    assert shared.cosine(other) < 0.7


@pytest.mark.parametrize("size", [4, 6])
def test_margins_at_sizes_that_no_table_lists(size: int) -> None:
    found, plain = solved(size, identity=True), solved(size, identity=False)
    assert 0.5 < found.least_margin < 1
    assert plain.least_margin == pytest.approx(-size / (size + 1), abs=1e-3)
    assert plain.from_closed_form < 1e-3 < 1 < found.from_closed_form
    assert found.from_symmetric(identity=True) < 1e-3
    assert found.from_symmetric(identity=False) > 1
    assert (found.relative_rank, plain.relative_rank) == (1, 2 - 1 / size)
    assert found.relative_gap < 1e-6 < 1e-3 < found.spoiled().relative_gap


def test_half_way_of_a_curve() -> None:
    steps = torch.tensor([0.0, 5.0, 10.0])
    assert half_way(steps, torch.tensor([0.1, 0.9, 0.2])) == 0
    assert half_way(steps, torch.tensor([0.1, 0.4, 0.8])) == 5
    assert math.isnan(half_way(steps, torch.tensor([0.1, 0.4, -0.1])))
