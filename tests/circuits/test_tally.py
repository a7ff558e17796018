"""What was noted seed by seed is what claims are judged on."""

import math

from circuits.claims import Claim, Control, judge
from circuits.tally import Tally, undefined

CLAIM = Claim("toy.a", "It holds.", "ours", "signal", ">= 1", Control("null", "< 1"))


def test_values_and_controls_are_gathered_by_claim() -> None:
    tally = Tally("toy.")
    tally.both("a", 2.0, 0.0)
    tally.value("a", 3.0)
    (seen,) = tally.observed().values()
    assert (seen.values, seen.control) == ((2.0, 3.0), (0.0,))


def test_what_is_undefined_confirms_nothing() -> None:
    (verdict,) = judge([CLAIM], undefined([CLAIM]))
    assert not verdict.passed
    assert math.isnan(verdict.mean)
