"""Edits of Z on a model whose Z is known: the optimum of the margin program."""

import pytest
import torch

from circuits.studies.bridge.accuracy import largest_rise
from circuits.studies.bridge.context import Specimen, bridge_answers, ood, ood_obj
from circuits.studies.bridge.matrix import (
    edited,
    object_block,
    permuted_rows,
    row_means,
    truncated,
)
from circuits.studies.bridge.templates import (
    blocks,
    bridge_peak,
    class_lead,
    inheritance,
    object_excess,
)
from circuits.studies.bridge.theory import (
    direction_cosine,
    least_margin,
    positive_margins,
)
from trained.bridge.arms import Recipe
from trained.bridge.data import make_world
from trained.bridge.embmlp import EmbMLP
from trained.bridge.symmetric import Symmetric, expand, solve_symmetric

SIZE = 10


def optimal(*, identity: bool) -> tuple[Symmetric, Specimen]:
    """Emb-MLP with the program's solution as its weights."""
    source = torch.Generator().manual_seed(0)
    world = make_world(SIZE, 1, "shift", generator=source)
    model = EmbMLP(world, factors="one", generator=source)
    solution = solve_symmetric(SIZE, identity=identity)
    with torch.no_grad():
        model.W_E.copy_(expand(solution))
    recipe = Recipe("direction", task="identity" if identity else "none")
    return solution, Specimen(recipe, 0, world, model)


def test_the_optimum_composes_only_with_identity() -> None:
    _, shared = optimal(identity=True)
    _, plain = optimal(identity=False)
    assert ood(shared) == ood_obj(shared) == positive_margins(shared) == 1
    assert ood(plain) == positive_margins(plain) == 0
    assert (bridge_answers(shared), bridge_answers(plain)) == (0, 1)


def test_templates_of_the_closed_form() -> None:
    """P = [[1, p], [1/p, 1]] with identity and the unit matrix without."""
    solution, shared = optimal(identity=True)
    p = solution.two_hop_margin
    assert inheritance(shared) == pytest.approx(p, abs=1e-4)
    assert bridge_peak(shared) == pytest.approx(1, abs=1e-4)
    assert class_lead(shared) > 0
    _, plain = optimal(identity=False)
    assert abs(inheritance(plain)) < 1e-4
    assert object_excess(plain) < 1e-4
    assert bridge_peak(plain) == pytest.approx(0, abs=1e-4)
    assert blocks(shared)["a->b"].shape == (SIZE, SIZE)


def test_flattened_rows_remove_the_answer_and_keep_the_facts() -> None:
    _, shared = optimal(identity=True)
    chance, facts = row_means(shared)
    assert chance <= 1 / SIZE + 1e-9
    assert facts == 1


def test_answers_follow_permuted_rows() -> None:
    _, shared = optimal(identity=True)
    assert permuted_rows(shared) == (1, 0)


def test_an_identity_edit_changes_nothing() -> None:
    _, shared = optimal(identity=True)
    query = shared.world.two_hop()
    clean = shared.model(query.tokens)[:, -1]
    same = edited(shared, query, object_block(shared))
    torch.testing.assert_close(same, clean)
    torch.testing.assert_close(shared.model(query.tokens)[:, -1], clean)


def test_only_the_shared_optimum_survives_truncation() -> None:
    assert truncated(optimal(identity=True)[1]) == pytest.approx(1, abs=1e-4)
    assert truncated(optimal(identity=False)[1]) < 0.9


def test_directions_of_the_optima() -> None:
    _, shared = optimal(identity=True)
    assert direction_cosine(shared, "identity") == pytest.approx(1, abs=1e-5)
    assert direction_cosine(shared, "none") < 0.7


@pytest.mark.parametrize(("size", "margin"), [(4, 0.741), (6, None)])
def test_margins_at_sizes_that_no_table_lists(size: int, margin: float | None) -> None:
    found = least_margin(size, identity=True)
    assert 0.5 < found < 1
    assert least_margin(size, identity=False) == pytest.approx(
        -size / (size + 1), abs=1e-3
    )
    if margin is not None:
        assert found == pytest.approx(
            solve_symmetric(size, identity=True).two_hop_margin, abs=1e-3
        )


def test_largest_rise_by_hand() -> None:
    assert largest_rise((1.0, 0.5, 0.75)) == 0.25
    assert largest_rise((1.0, 0.5, 0.25)) == -0.25
