"""A lab gives models by arm, seed and step, remembers, and knows its nulls."""

from pathlib import Path

import pytest
import torch

from circuits.claims import NotTested
from circuits.confirm import open_lab
from circuits.lab import Lab, once
from circuits.study import Request
from circuits.training import prepare, train_run
from tests import toy


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    out: Path = tmp_path_factory.mktemp("runs")
    run = prepare(Request("tests.toy:STUDY", seeds=(0, 4), out=out, device="cpu"))
    train_run(run)
    return open_lab(run)


def test_models_are_the_stored_ones_and_kept(lab: Lab) -> None:
    model = lab.model("net", 4)
    assert torch.equal(model.second, lab.run.weights("net")["second"][1])
    assert lab.model("net", 4) is model
    assert list(lab.models("net")) == [lab.model("net", 0), model]
    assert lab.models("net")[1] is model
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.training


def test_the_untrained_lab_has_the_initial_weights_and_nothing_else_changes(
    lab: Lab,
) -> None:
    absent = lab.untrained()
    assert torch.equal(absent.model("net", 4).second, toy.Net(4).second)
    assert not torch.equal(absent.model("net", 4).second, lab.model("net", 4).second)
    assert (absent.seeds, absent.config) == (lab.seeds, lab.config)
    assert lab.untrained() is absent
    with pytest.raises(NotTested, match="no course of training"):
        absent.metrics("net")
    assert "size" in lab.metrics("net")


def test_an_arm_that_the_run_lacks_is_not_tested(lab: Lab) -> None:
    for ask in (lab.seeds_of, lab.models, lab.metrics):
        with pytest.raises(NotTested, match="this run has no arm triplet"):
            list(ask("triplet"))


def test_what_was_measured_is_measured_once() -> None:
    class Counting(Lab):
        calls = 0

        def __init__(self) -> None:
            self.known = {}

        @once
        def double(self, value: int) -> int:
            Counting.calls += 1
            return 2 * value

    counting = Counting()
    assert [counting.double(2), counting.double(2), counting.double(3)] == [4, 4, 6]
    assert Counting.calls == 2
    assert counting.other().double(2) == 4
    assert Counting.calls == 3


def test_a_lab_judges_a_part_of_its_claims(lab: Lab) -> None:
    done = lab.confirm("*.negative")
    assert [verdict.claim.id for verdict in done.verdicts] == ["toy.negative"]
