"""A claim is written once, before the run; its verdict follows from what it gives."""

import json
import math
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace

import pytest

from circuits.claims import (
    Claim,
    NotTested,
    Null,
    Shown,
    Verdict,
    digest,
    judge,
    under,
)
from circuits.conditions import Each, Mean


def values(*numbers: float) -> Mean:
    return Mean("all@160", ">= 0.9", lambda _lab: numbers)


CLAIM = Claim(
    "lego.length.c6",
    "Length 160 is solved.",
    source="Figure 1a",
    kind="behaviour",
    conditions=(values(1.0, 0.99, 0.98),),
    nulls=(Null("untrained", measure=lambda _lab: [0.02]),),
    weight=5,
    paper=1.0,
)


def judged(**changes: object) -> Verdict:
    return judge(replace(CLAIM, **changes), lab=None)  # type: ignore[arg-type]


def test_conditions_that_hold_and_nulls_that_fail_confirm() -> None:
    verdict = judged()
    assert (verdict.word, verdict.reason, verdict.passed) == ("confirmed", "", True)


def test_a_condition_outside_its_expectation_refutes() -> None:
    verdict = judged(conditions=(values(0.1, 0.2, 0.3),))
    assert verdict.word == "refuted"
    assert "all@160 0.2" in verdict.reason
    assert "expected >= 0.9" in verdict.reason


def test_an_interval_across_the_bound_is_inconclusive_and_says_what_would_do() -> None:
    verdict = judged(conditions=(values(1.0, 0.99, 0.7),))
    assert verdict.word == "inconclusive"
    assert "too close" in verdict.reason or "would decide" in verdict.reason


def test_one_of_several_conditions_that_fails_refutes() -> None:
    wrong = Each("each", "<= 0", lambda _lab: [1.0, 1.0, 1.0])
    assert judged(conditions=(*CLAIM.conditions, wrong)).word == "refuted"


def test_fewer_than_three_replicates_do_not_confirm_unless_it_is_mathematics() -> None:
    pair = Each("each", ">= 0.9", lambda _lab: [1.0, 1.0])
    assert judged(conditions=(pair,)).word == "inconclusive"
    assert judged(conditions=(pair,), kind="theory").word == "confirmed"


def test_a_null_that_passes_makes_it_inconclusive_and_is_named() -> None:
    verdict = judged(nulls=(Null("untrained", measure=lambda _lab: [0.95]),))
    assert verdict.word == "inconclusive"
    assert verdict.reason == "null untrained passes too"


def test_a_null_may_have_a_stricter_bound_of_its_own() -> None:
    for bound, word in (("<= 0.5", "confirmed"), ("<= 0.01", "inconclusive")):
        null = Null("untrained", measure=lambda _lab: [0.02], bound=bound)
        assert judged(nulls=(null,)).word == word


def test_a_null_lab_is_measured_as_the_lab_is() -> None:
    measured = []

    def measure(lab: str) -> Sequence[float]:
        measured.append(lab)
        return {"trained": [1.0, 1.0, 1.0], "untrained": [0.0]}[lab]

    null = Null("untrained", on=lambda _lab: "untrained")
    claim = replace(CLAIM, conditions=(Mean("x", ">= 0.9", measure),), nulls=(null,))
    assert judge(claim, "trained").passed
    assert measured == ["trained", "untrained"]


def test_a_null_lab_passes_only_if_it_meets_every_condition() -> None:
    both = (values(1, 1, 1), Mean("y", ">= 0.9", lambda lab: lab))
    claim = replace(
        CLAIM,
        conditions=both,
        nulls=(Null("half", on=lambda _lab: [0.0]),),
    )
    assert judge(claim, [1.0, 1.0, 1.0]).passed


def test_a_null_that_cannot_be_measured_leaves_it_open() -> None:
    def absent(_lab: object) -> object:
        raise NotTested("no such arm")

    verdict = judged(nulls=(Null("shuffled", on=absent),))
    assert verdict.word == "inconclusive"
    assert "null shuffled could not be measured: no such arm" in verdict.reason


def test_a_control_must_hold() -> None:
    random_edit = Each("random edit", ">= 0.9", lambda _lab: [0.2, 0.2, 0.2])
    verdict = judged(controls=(random_edit,))
    assert verdict.word == "inconclusive"
    assert verdict.reason.startswith("control: random edit")


def test_without_its_precondition_a_claim_is_not_tested() -> None:
    gate = Mean("loss", "<= 0.01", lambda _lab: [0.5, 0.6, 0.7])
    verdict = judged(preconditions=(gate,))
    assert verdict.word == "not tested"
    assert verdict.reason.startswith("precondition: loss 0.6")


def test_a_lab_that_lacks_what_is_needed_does_not_test() -> None:
    def lacking(_lab: object) -> list[float]:
        raise NotTested("this run has no arm C6")

    verdict = judged(conditions=(Mean("x", ">= 0", lacking),))
    assert (verdict.word, verdict.reason) == ("not tested", "this run has no arm C6")
    absent = judged(conditions=(), nulls=(), not_tested="needs |X| = 170")
    assert (absent.word, absent.reason) == ("not tested", "needs |X| = 170")


def test_what_could_not_fail_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="it has no null"):
        replace(CLAIM, nulls=())
    with pytest.raises(ValueError, match="has no condition"):
        replace(CLAIM, conditions=())
    with pytest.raises(ValueError, match="either a lab or a measure"):
        Null("nothing")
    with pytest.raises(ValueError, match="is neither"):
        Null("odd", measure=lambda _lab: [0.0], bound="small")


def test_nobody_can_set_a_verdict() -> None:
    verdict = judged(conditions=(values(0.1, 0.2, 0.3),))
    with pytest.raises((FrozenInstanceError, AttributeError)):
        verdict.word = "confirmed"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        verdict.conditions = ()  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        CLAIM.weight = 0  # type: ignore[misc]


def test_the_json_of_a_verdict_is_the_documented_one() -> None:
    written = json.loads(json.dumps(judged().as_dict()))
    expected = {
        *("claim", "headline", "statement", "source", "origin", "weight", "kind"),
        *("paper", "rule", "expected", "values", "replicates", "mean", "ci95"),
        *("conditions", "preconditions", "controls", "nulls", "gated", "verdict"),
        *("passed", "reason", "revised", "stored", "p_value", "seconds", "shown"),
    }
    assert written.keys() == expected
    assert written["rule"] == "mean"
    assert written["values"] == [1.0, 0.99, 0.98]
    assert written["replicates"] == 3
    assert written["mean"] == pytest.approx(0.99)
    assert written["conditions"][0]["state"] == "holds"
    (null,) = written["nulls"]
    assert null["expected"] == "not >= 0.9"
    assert (null["mean"], null["meets"]) == (0.02, False)
    assert written["gated"] is True


def test_what_is_not_a_number_is_null_in_json() -> None:
    verdict = judged(
        conditions=(values(math.nan, 1.0, 1.0),),
        nulls=(Null("n", measure=lambda _lab: [math.inf]),),
    )
    written = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
    assert written["values"] == [None, 1.0, 1.0]
    assert written["mean"] is None
    assert written["ci95"] == [None, None]
    assert written["nulls"][0]["values"] == [None]
    assert written["passed"] is False


def test_the_digest_sees_every_expectation_and_null() -> None:
    changed = (
        replace(CLAIM, conditions=(Mean("all@160", ">= 0.8", lambda _lab: [1.0]),)),
        replace(CLAIM, nulls=(Null("shuffled", measure=lambda _lab: [0.02]),)),
        replace(CLAIM, statement="Length 80 is solved."),
        replace(CLAIM, weight=4),
    )
    digests = {digest([claim]) for claim in (CLAIM, *changed)}
    assert len(digests) == 1 + len(changed)
    assert digest([CLAIM]) == digest([replace(CLAIM)])


@pytest.mark.parametrize("found", [(1.0,), (-5.0, math.nan), (math.inf,) * 3])
@pytest.mark.parametrize(
    "conditions",
    [(values(1.0, 0.99, 0.98),), (values(0.1, 0.2, 0.3),), (values(1.0, 0.9, 0.7),)],
)
def test_what_is_only_shown_never_changes_a_verdict(
    found: tuple[float, ...], conditions: tuple[Mean, ...]
) -> None:
    plain = judged(conditions=conditions)
    beside = judged(conditions=conditions, shown=(Shown("it", lambda _lab: found),))
    assert (beside.word, beside.reason) == (plain.word, plain.reason)
    written = json.loads(json.dumps(beside.as_dict(), allow_nan=False))
    kept = [v if math.isfinite(v) else None for v in found]
    assert written["shown"] == [{"name": "it", "values": kept, "reason": ""}]


def test_what_is_only_shown_may_be_missing_and_needs_no_precondition() -> None:
    def missing(_lab: object) -> list[float]:
        raise NotTested("no arm")

    verdict = judged(shown=(Shown("it", missing),))
    assert verdict.passed
    assert verdict.shown[0].reason == "no arm"
    unmet = (values(0.1, 0.1, 0.1),)
    verdict = judged(preconditions=unmet, shown=(Shown("it", lambda _lab: [1.0]),))
    assert verdict.word == "not tested"
    assert verdict.shown[0].values == (1.0,)


def test_what_is_only_shown_is_fixed_by_name_and_is_no_null() -> None:
    shown = replace(CLAIM, shown=(Shown("it", lambda _lab: [1.0]),))
    assert shown.as_dict()["shown"] == ["it"]
    assert digest([shown]) != digest([CLAIM])
    assert "shown" not in CLAIM.as_dict()
    with pytest.raises(ValueError, match="could not fail"):
        replace(shown, nulls=())


def test_claims_hang_under_their_headline() -> None:
    (claim,) = under("Length", [CLAIM])
    assert claim.headline == "Length"
    assert claim.id == CLAIM.id
