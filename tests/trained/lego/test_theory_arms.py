import math

import pytest
import torch

from tests.lego_theory_models import planted
from trained.lego.action import action
from trained.lego.config import Theory
from trained.lego.task import Vocabulary, draw_sentences, table_of
from trained.lego.theory import TheoryModel, loss_floor
from trained.lego.theory_losses import (
    cap_entries,
    cap_step,
    every_pair,
    every_variable,
    pair_loss,
    self_labelled_loss,
    slot_loss,
    value_loss,
    variable_loss,
)

N_VARIABLES = 24


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def untrained(text: str) -> TheoryModel:
    words = Vocabulary.of(action(text), N_VARIABLES)
    return TheoryModel(words, Theory(), generator=source())


def test_every_pair_occurs_once_with_its_image() -> None:
    table = table_of(action("S3"))
    given = every_pair(table, n_variables=N_VARIABLES, generator=source())
    g, (first, last) = given.actions[:, 0], given.values.T
    assert len(set(zip(g.tolist(), first.tolist(), strict=True))) == 18
    assert torch.equal(last, table[g, first])
    assert (given.variables[:, 0] != given.variables[:, 1]).all()


def test_every_variable_is_led_to_once() -> None:
    table = table_of(action("S3"))
    given = every_variable(table, n_variables=N_VARIABLES, generator=source())
    assert given.variables[:, 1].tolist() == list(range(N_VARIABLES))
    assert (given.variables[:, 0] != given.variables[:, 1]).all()
    assert given.variables.max() < N_VARIABLES


def test_slot_loss_of_zero_logits_is_log_d() -> None:
    target = torch.zeros(2, 3, dtype=torch.long)
    loss = slot_loss(torch.zeros(2, 3, 5), target, d=50)
    assert float(loss) == pytest.approx(math.log(50))


def test_planted_features_reach_the_floor() -> None:
    model = planted("C4", N_VARIABLES, 0.0)
    table = table_of(action("C4"))
    given = every_pair(table, n_variables=N_VARIABLES, generator=source())
    floor = loss_floor(model.vocabulary.size, 2.0)
    assert float(value_loss(model, given)) == pytest.approx(floor, rel=0.2)
    assert float(variable_loss(model, given)) == pytest.approx(floor, rel=0.2)


@pytest.mark.parametrize("text", ["C4", "S3"])
def test_pair_loss_is_the_value_loss_written_out(text: str) -> None:
    model = untrained(text)
    table = table_of(action(text))
    given = every_pair(table, n_variables=N_VARIABLES, generator=source())
    torch.testing.assert_close(pair_loss(model, given), value_loss(model, given))


def test_self_labels_come_from_the_frozen_copy_alone() -> None:
    model = planted("S3", N_VARIABLES, 6.0)
    given = draw_sentences(
        table_of(action("S3")), 64, 4, n_variables=N_VARIABLES, generator=source()
    )
    blind = self_labelled_loss(model, given)  # the copy still attends uniformly
    model.annotator.load_state_dict(model.tables.state_dict())
    own = self_labelled_loss(model, given)
    wrong = given._replace(values=given.values.clone())
    wrong.values[:, 1:] = (wrong.values[:, 1:] + 1) % 3
    torch.testing.assert_close(self_labelled_loss(model, wrong), own)
    gold = value_loss(model, given, steps=slice(1, 2))
    torch.testing.assert_close(own, gold)
    assert float(blind) > 2 * float(own)


def test_caps() -> None:
    gradients = {"a": torch.tensor([[4.0, 1.0], [0.1, 0.2]]), "b": torch.ones(2, 1)}
    whole = {name: g.clone() for name, g in gradients.items()}
    cap_step(whole, largest=2.0)
    assert whole["a"].tolist() == [[2.0, 0.5], [pytest.approx(0.1), pytest.approx(0.2)]]
    assert whole["b"].tolist() == [[0.5], [1.0]]
    cap_entries(gradients, largest=0.5)
    assert gradients["a"][0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("optimiser", "conserved"), [("gd", True), ("adam", False)])
def test_gradient_descent_conserves_each_neurons_difference(
    optimiser: str, conserved: bool
) -> None:
    model = untrained("S3").double()
    neurons = model.block.value
    table = table_of(action("S3"))
    given = every_pair(table, n_variables=N_VARIABLES, generator=source())
    weights = [neurons.W2, neurons.W5]
    make = torch.optim.SGD if optimiser == "gd" else torch.optim.Adam
    steps = make(weights, lr=500.0 if optimiser == "gd" else 0.02)

    def difference() -> torch.Tensor:
        return (neurons.W2.sum(0) - neurons.W5.sum(0)).detach()

    before = difference()
    for _ in range(20):
        steps.zero_grad()
        pair_loss(model, given).backward()
        steps.step()
    moved = float((difference() - before).abs().max())
    start = untrained("S3").block.value.W2.detach()
    assert float((neurons.W2.detach() - start).abs().max()) > 0.1
    assert (moved < 1e-9) is conserved
