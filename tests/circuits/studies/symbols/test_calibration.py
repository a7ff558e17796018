"""The substitutes do what they are said to do, by the route they are said to take."""

from dataclasses import replace

import pytest
import torch

from circuits.claims import NotTested
from circuits.confirm import open_lab
from circuits.studies.symbols.lab import SymbolsLab
from circuits.studies.symbols.substitutes import SUBSTITUTES, compared
from circuits.study import Substitute
from trained.store import shipped
from trained.symbols.presets import ZOO
from trained.symbols.setting import copying, relation
from trained.symbols.tasks import task

WAYS = {found.name: found for found in SUBSTITUTES}
WIDEST = ZOO.copying.d_model[-1]
COMPARES = "symbols compared by aI"
IMPOSTORS = [found for found in SUBSTITUTES if found.role == "impostor"]


@pytest.fixture(scope="module")
def lab() -> SymbolsLab:
    found = open_lab(shipped("symbols"))
    assert isinstance(found, SymbolsLab)
    return found


@pytest.mark.parametrize(
    "substitute", [WAYS[COMPARES], *IMPOSTORS], ids=lambda s: s.name
)
def test_it_generalises_where_the_paper_says_and_nowhere_else(
    lab: SymbolsLab, substitute: Substitute
) -> None:
    found, config = substitute.make(lab), lab.config
    for setting in (relation(config, 16, "a"), relation(config, 1024)):
        assert found.scores(setting, "test_error") == [0, 0, 0]
        assert max(found.over(setting, lambda s: s.loss("train"))) < 1e-3
    few = relation(config, 64)
    assert min(found.scores(few)) > 0.75
    assert max(found.over(few, lambda s: s.loss("train"))) < 1e-3


@pytest.mark.parametrize("substitute", IMPOSTORS, ids=lambda s: s.name)
def test_an_impostor_is_found_out_by_taking_a_off(
    lab: SymbolsLab, substitute: Substitute
) -> None:
    made = substitute.make(lab)
    for specimen in made.specimens(relation(lab.config, lab.config.compared_n, "a")):
        assert specimen.without("a", 0).error() == specimen.error() == 0
    found = made.confirm("symbols.identity.cause").verdicts[0]
    assert found.word == "refuted"


def test_a_planted_a_is_needed(lab: SymbolsLab) -> None:
    planted = WAYS[COMPARES].make(lab)
    assert planted.confirm("symbols.identity.cause").passed
    assert planted.confirm("symbols.vanilla.curve").passed


def test_the_planted_copier_copies_what_lies_in_the_seen_span(lab: SymbolsLab) -> None:
    found = WAYS["copying in the span of seen symbols"].make(lab)
    plain, repaired = (
        found.specimens(copying(lab.config, WIDEST, 16, identity))
        for identity in ("none", "b")
    )
    for one, other in zip(plain, repaired, strict=True):
        assert one.error() > 0.8
        assert one.span_error("seen") < 0.3
        assert one.error("train") < 0.3
        assert other.error() == 0
    assert found.confirm("symbols.copy.span*").passed


def test_nulls_confirm_nothing_that_the_paper_says_of_training(lab: SymbolsLab) -> None:
    for absent in (lab.untrained(), lab.shuffled()):
        for verdict in absent.confirm("symbols.[cimv]*").verdicts:
            claim = verdict.claim
            if claim.origin == "paper" and claim.kind != "theory":
                assert not verdict.passed, claim.id


def test_a_shuffled_model_is_fitted_to_permuted_answers(lab: SymbolsLab) -> None:
    setting = relation(lab.config, 64)
    (real, *_), (twin, *_) = lab.specimens(setting), lab.shuffled().specimens(setting)
    assert torch.equal(real.strings["train"].tokens, twin.strings["train"].tokens)
    untaught = replace(twin, strings=real.strings)
    assert twin.loss("train") < 0.1 < untaught.loss("train")


def test_positions_that_decide() -> None:
    assert compared(task("same_different")) == (0, 1)
    with pytest.raises(NotTested, match="majority-4"):
        compared(task("majority-4"))
