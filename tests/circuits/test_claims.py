"""Claims are fixed in advance; verdicts are computed."""

import json
import math
from dataclasses import FrozenInstanceError, replace

import pytest

from circuits.claims import Claim, Control, Observed, Verdict, judge, meets, near
from trained.errors import BadInput

CLAIM = Claim(
    id="lego.length.c6",
    statement="Length six is solved.",
    source="Figure 1a",
    kind="behaviour",
    expected=">= 0.95",
    control=Control("untrained", "<= 0.3"),
    paper=1.0,
)


def verdict(values: list[float], control: list[float], claim: Claim = CLAIM) -> Verdict:
    return Verdict(claim, Observed.of(values, control))


@pytest.mark.parametrize(
    ("expected", "inside", "outside"),
    [
        (">= 0.95", (0.95, 1), (0.949, -1, math.inf)),
        ("<= 0.3", (0.3, -5), (0.301, math.inf)),
        ("> 0", (1e-9,), (0, -1)),
        ("< 1e-3", (0, -1), (1e-3, 2)),
        ("in [-0.1, 0.1]", (-0.1, 0, 0.1), (-0.11, 0.11, math.inf)),
        (">= -.5", (-0.5,), (-0.6,)),
        ("<= +2.5E+1", (25,), (25.1,)),
    ],
)
def test_the_grammar_of_expectations(
    expected: str, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    assert all(meets(float(value), expected) for value in inside)
    assert not any(meets(float(value), expected) for value in outside)


@pytest.mark.parametrize("expected", [">= 0", "<= 0", "> 0", "< 0", "in [-9, 9]"])
def test_what_is_not_a_number_meets_no_expectation(expected: str) -> None:
    assert not meets(math.nan, expected)


@pytest.mark.parametrize(
    "expected",
    [
        *("", "0.5", "= 0.5", "== 0.5", ">=0.5", ">= x", ">= 0.5 ", "about 0.5"),
        *("in [1]", "in (0, 1)", "in [0.1,0.2]", ">= nan", "<= inf", ">= 0.5 or < 0"),
    ],
)
def test_an_expectation_outside_the_grammar_cannot_be_written(expected: str) -> None:
    with pytest.raises(ValueError, match="is neither"):
        replace(CLAIM, expected=expected)
    with pytest.raises(ValueError, match="is neither"):
        replace(CLAIM, control=Control("untrained", expected))


@pytest.mark.parametrize(
    ("target", "tolerance", "expected"),
    [
        (0.5, 0.01, "in [0.49, 0.51]"),
        (0.0, 1e-7, "in [-1e-07, 1e-07]"),
        (-2.0, 0.5, "in [-2.5, -1.5]"),
    ],
)
def test_near_is_an_interval_of_the_grammar(
    target: float, tolerance: float, expected: str
) -> None:
    assert near(target, tolerance) == expected
    assert meets(target, near(target, tolerance))


@pytest.mark.parametrize(
    ("value", "control", "passed"),
    [(0.99, 0.1, True), (0.99, 0.5, False), (0.9, 0.1, False), (0.9, 0.5, False)],
)
def test_a_verdict_needs_the_value_and_the_control(
    value: float, control: float, passed: bool
) -> None:
    assert verdict([value], [control]).passed is passed


def test_the_mean_over_seeds_is_judged() -> None:
    seen = verdict([1.0, 0.92], [0.5, 0.0])
    assert seen.mean == pytest.approx(0.96)
    assert seen.passed


def test_a_stricter_claim_asks_every_seed() -> None:
    strict = replace(CLAIM, every_seed=True)
    assert not verdict([1.0, 0.92], [0.0], strict).passed
    assert verdict([1.0, 0.95], [0.0], strict).passed


@pytest.mark.parametrize("values", [[math.nan], [1.0, math.nan], [math.nan, 1.0]])
@pytest.mark.parametrize("expected", [">= 0", "<= 2", "in [0, 2]"])
def test_a_seed_that_gave_no_number_never_passes(
    values: list[float], expected: str
) -> None:
    claim = replace(CLAIM, expected=expected, control=Control("same", expected))
    assert not verdict(values, [1.0], claim).passed
    assert not verdict([1.0], values, claim).passed


def test_nobody_can_set_passed() -> None:
    seen = verdict([0.5], [0.1])
    with pytest.raises((FrozenInstanceError, AttributeError)):
        seen.passed = True  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        seen.observed = Observed.of([1.0], [0.1])  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        CLAIM.expected = ">= 0"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Verdict(CLAIM, seen.observed, passed=True)  # type: ignore[call-arg]
    assert not seen.passed


def test_the_interval_holds_the_mean_and_stays_within_the_seeds() -> None:
    seen = verdict([0.2, 0.4, 0.9], [0.0])
    low, high = seen.ci95
    assert 0.2 <= low <= seen.mean <= high <= 0.9
    assert verdict([0.4], [0.0]).ci95 == (0.4, 0.4)


def test_the_json_of_a_verdict_is_the_documented_one() -> None:
    written = json.loads(json.dumps(verdict([1.0, 1.0], [0.25]).as_dict()))
    assert written == {
        "claim": "lego.length.c6",
        "statement": "Length six is solved.",
        "source": "Figure 1a",
        "kind": "behaviour",
        "paper": 1.0,
        "expected": ">= 0.95",
        "values": [1.0, 1.0],
        "mean": 1.0,
        "ci95": [1.0, 1.0],
        "control": {"name": "untrained", "expected": "<= 0.3", "values": [0.25]},
        "gated": True,
        "passed": True,
    }
    assert list(written) == [
        *("claim", "statement", "source", "kind", "paper", "expected", "values"),
        *("mean", "ci95", "control", "gated", "passed"),
    ]


def test_what_is_not_a_number_is_null_in_json() -> None:
    text = json.dumps(verdict([math.nan, 1.0], [math.inf]).as_dict(), allow_nan=False)
    written = json.loads(text)
    assert written["values"] == [None, 1.0]
    assert written["mean"] is None
    assert written["ci95"] == [None, None]
    assert written["control"]["values"] == [None]
    assert written["passed"] is False


def test_judge_gives_a_verdict_for_each_claim_in_order() -> None:
    other = replace(CLAIM, id="lego.other")
    seen = {"lego.other": Observed.of([0.0], [0.0])}
    seen["lego.length.c6"] = Observed.of([1.0], [0.0])
    verdicts = judge([CLAIM, other], seen)
    assert [(v.claim.id, v.passed) for v in verdicts] == [
        ("lego.length.c6", True),
        ("lego.other", False),
    ]


def test_judge_finds_missing_foreign_and_double_claims() -> None:
    seen = Observed.of([1.0], [0.0])
    with pytest.raises(AssertionError, match=r"lego\.length\.c6"):
        judge([CLAIM], {})
    with pytest.raises(AssertionError, match="foreign"):
        judge([CLAIM], {CLAIM.id: seen, "foreign": seen})
    with pytest.raises(AssertionError, match="twice"):
        judge([CLAIM, CLAIM], {CLAIM.id: seen})


def test_judge_refuses_a_claim_without_values() -> None:
    with pytest.raises(BadInput, match=r"no seed gave a value for lego\.length\.c6"):
        judge([CLAIM], {CLAIM.id: Observed.of([], [0.0])})
