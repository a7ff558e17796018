"""Rules say holds, fails or open; each is worked by hand here."""

import math

import pytest

from circuits.conditions import (
    Chance,
    Count,
    Each,
    Mean,
    Median,
    Outcome,
    Proportion,
    Share,
    bounds,
    chance,
    guesses,
    meets,
    near,
    placed,
)


def mean(expected: str, *values: float) -> Outcome:
    return Mean("x", expected, lambda _lab: values).measured(None)


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
    assert mean(expected, math.nan, 1.0, 1.0).state == "open"


@pytest.mark.parametrize(
    "expected",
    [
        *("", "0.5", "= 0.5", "== 0.5", ">=0.5", ">= x", ">= 0.5 ", "about 0.5"),
        *("in [1]", "in (0, 1)", "in [0.1,0.2]", ">= nan", "<= inf", ">= 0.5 or < 0"),
    ],
)
def test_an_expectation_outside_the_grammar_cannot_be_written(expected: str) -> None:
    with pytest.raises(ValueError, match="is neither"):
        Mean("x", expected, lambda _lab: [1.0])


def test_the_numbers_of_an_expectation() -> None:
    assert bounds(">= 0.95") == (0.95,)
    assert bounds("in [-0.1, 2]") == (-0.1, 2.0)
    assert near(0.5, 0.01) == "in [0.49, 0.51]"
    assert near(0.0, 1e-7) == "in [-1e-07, 1e-07]"


@pytest.mark.parametrize(
    ("low", "high", "expected", "state"),
    [
        (0.96, 0.99, ">= 0.95", "holds"),
        (0.90, 0.94, ">= 0.95", "fails"),
        (0.90, 0.99, ">= 0.95", "open"),
        (0.1, 0.2, "in [0, 1]", "holds"),
        (1.1, 1.2, "in [0, 1]", "fails"),
        (0.9, 1.2, "in [0, 1]", "open"),
        (-1.0, 2.0, "in [0, 1]", "open"),
        (math.nan, math.nan, ">= 0", "open"),
    ],
)
def test_an_interval_lies_inside_outside_or_across(
    low: float, high: float, expected: str, state: str
) -> None:
    assert placed(low, high, expected) == state


def test_the_mean_is_judged_by_its_t_interval() -> None:
    # Mean 2, standard deviation 1, t(.975, 2) = 4.3027: 2 -+ 2.4841.
    found = mean(">= -0.5", 1.0, 2.0, 3.0)
    assert found.interval == pytest.approx((-0.48414, 4.48414), abs=1e-5)
    assert found.state == "holds"
    assert mean(">= 0", 1.0, 2.0, 3.0).state == "open"
    assert mean(">= 4.5", 1.0, 2.0, 3.0).state == "fails"


def test_one_replicate_decides_nothing() -> None:
    found = mean(">= 0", 5.0)
    assert found.state == "open"
    assert "one replicate decides nothing" in found.would_decide()
    assert found.passes


def test_an_open_mean_says_how_many_replicates_would_decide() -> None:
    found = mean(">= 0", 1.0, 2.0, 3.0)
    number = int(found.would_decide().split()[1])
    # t(.975, n - 1) / sqrt(n) < 2 holds from n = 4 on: 3.182 / 2 = 1.59.
    assert number == 4
    assert "too close" in mean(">= 2", 1.0, 2.0, 3.0).would_decide()


@pytest.mark.parametrize(
    ("values", "state", "universal"),
    [
        ((1, 2), "holds", "holds"),
        ((1, -1), "open", "fails"),
        ((-1, -2), "fails", "fails"),
    ],
)
def test_each_asks_every_replicate(
    values: tuple[float, ...], state: str, universal: str
) -> None:
    some = Each("x", ">= 0", lambda _lab: values).measured(None)
    every = Each("x", ">= 0", lambda _lab: values, universal=True).measured(None)
    assert (some.state, every.state) == (state, universal)


def test_count_asks_for_a_share_of_the_replicates() -> None:
    def count(hits: int, of: int) -> Outcome:
        values = [1.0] * hits + [0.0] * (of - hits)
        return Count("x", ">= 1", lambda _lab: values, least=9, of=10).measured(None)

    assert count(9, 10).state == "holds"
    assert count(8, 10).state == "fails"
    assert count(18, 20).state == "holds"
    assert count(3, 3).state == "open"
    assert "10 replicates would decide" in count(3, 3).would_decide()
    assert count(3, 3).passes


def test_a_proportion_is_judged_on_the_pooled_examples() -> None:
    def share(*shares: tuple[int, int]) -> Outcome:
        return Proportion(
            "x", ">= 0.95", lambda _lab: [Share(*s) for s in shares]
        ).measured(None)

    # Perfect on 72 examples: the lower end is .025^(1/72) = .9501.
    assert share((36, 36), (36, 36)).state == "holds"
    assert share((35, 35), (36, 36)).state == "open"
    assert share((40, 72)).state == "fails"
    assert share((35, 35)).values == (1.0,)
    assert "examples would decide" in share((35, 35)).would_decide()


def test_what_guessing_gives_follows_from_the_number_of_replicates() -> None:
    # The 99.9 % quantile of Binomial(replicates x n, 1 / n).
    assert [guesses(3 * n, 1 / n) for n in (16, 40, 100)] == [9, 9, 10]
    assert [guesses(times * 40, 1 / 40) for times in (1, 3, 10)] == [5, 9, 21]
    assert chance(100, 100, 3) == "<= 0.0333"
    assert chance(40, 20, 3) == "<= 0.1"

    def guessed(*values: float) -> Outcome:
        expected = chance(40, 40, 3)
        return Chance("x", expected, lambda _lab: values, 40, 40).measured(None)

    assert guessed(0.1, 0.1, 0.025).state == "holds"  # 9 hits of 120
    assert guessed(0.1, 0.1, 0.05).state == "fails"  # 10 hits
    assert guessed(0.125).passes  # 5 hits of 40
    assert not guessed(0.15).passes
    assert guessed(math.nan, 0.0, 0.0).state == "open"
    assert guessed(0.0).as_dict()["rule"] == "chance"


def test_a_condition_without_a_value_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="gave no value"):
        mean(">= 0")


def test_the_median_is_judged_by_its_order_statistics() -> None:
    def middle(*values: float) -> Outcome:
        return Median("x", ">= 1", lambda _lab: values).measured(None)

    assert middle(1, 2, 3, 4, 5, 600).state == "holds"
    assert middle(0, 2, 3, 4, 5, 600).state == "open"
    assert middle(-1, 0, 0, 0, 0, 0.5).state == "fails"
    assert middle(1, 2, 3).state == "open"
    assert "6 replicates" in middle(1, 2, 3).would_decide()
    assert middle(1, 2, 300).passes


def test_a_mean_has_the_p_value_of_its_t_test() -> None:
    # t = 2 / (1 / sqrt 3) = 3.4641 with 2 degrees of freedom.
    assert mean(">= 0", 1.0, 2.0, 3.0).p_value == pytest.approx(0.03709, abs=1e-5)
    assert mean("<= 0", 1.0, 2.0, 3.0).p_value == pytest.approx(0.96291, abs=1e-5)
    both = mean("in [0, 10]", 1.0, 2.0, 3.0).p_value
    assert both == pytest.approx(0.03709, abs=1e-5)
    assert Each("x", ">= 0", lambda _lab: [1.0]).measured(None).p_value is None
