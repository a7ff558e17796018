"""Verdicts on a terminal: a line for each claim, then the scores."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from circuits.claims import Shown, judge
from circuits.conditions import Mean
from circuits.confirm import confirm_run
from circuits.report.terminal import (
    console,
    measured,
    print_claim,
    print_confirmation,
    print_end,
    print_part,
    print_summary,
    print_tree,
    score_lines,
)
from circuits.report.verdicts import Judged, Reading, Stored, judged
from circuits.study import Request
from circuits.training import prepare, train_run

from .test_tables import VERDICTS, as_object, claim


@pytest.fixture
def found() -> Judged:
    return judged(as_object(VERDICTS), "toy")


def printed(found: Judged, width: int = 100, *, verbose: bool = False) -> list[str]:
    page = Console(width=width, force_terminal=False)
    with page.capture() as capture:
        print_tree(page, found, "runs/x", verbose=verbose)
    return capture.get().splitlines()


def test_the_two_scores_count_by_weight_and_by_word(found: Judged) -> None:
    assert score_lines(found) == [
        "paper score: 75% confirmed by weight, 100% tested (1 confirmed, 1 refuted)",
        "own score: 100% confirmed by weight, 100% tested (1 confirmed)",
    ]


def test_a_line_for_each_claim_comes_first_and_the_scores_follow(
    found: Judged,
) -> None:
    lines = printed(found)
    assert lines[1:4] == [
        "toy: Sizes",
        "✓ confirmed    size  0.5                      in [0.1, 0.9]",
        "✗ refuted      large 2                        in [0.1, 0.9]",
    ]
    assert lines[5].startswith("toy, preset quick, 3 seeds")
    assert lines[6].startswith("paper score: 75%")
    assert lines[7].startswith("own score")
    assert "own" not in " ".join(lines[:5])


def test_headlines_and_scores_can_be_printed_apart(tmp_path: Path) -> None:
    run = prepare(Request("tests.toy:STUDY", device="cpu", out=tmp_path))
    train_run(run)
    page = Console(width=100, force_terminal=False)
    with page.capture() as capture:
        done = confirm_run(run, told=lambda p: print_part(page, p, verbose=False))
        print_end(page, done, verbose=False)
    apart = capture.get()
    with page.capture() as capture:
        print_confirmation(page, done)
    assert apart == capture.get()


def test_a_line_shows_the_condition_that_decided() -> None:
    fails = Mean("rest", ">= 0.3", lambda _lab: [0.2, 0.2, 0.2])
    whole = claim(0.5)
    both = replace(whole, conditions=(*whole.conditions, fails))
    lines = printed(judged(as_object((judge(both, lab=None),)), "toy"))
    assert "✗ refuted      size 0.2                      >= 0.3" in lines


def test_a_doubt_that_the_value_does_not_show_is_told_at_once() -> None:
    poor = Mean("base", ">= 0.9", lambda _lab: [0.1, 0.1, 0.1])
    doubted = judge(replace(claim(0.5), controls=(poor,)), lab=None)
    assert doubted.word == "inconclusive"
    lines = printed(judged(as_object((doubted,)), "toy"))
    assert "    why: control: base 0.1, expected >= 0.9" in map(str.rstrip, lines)
    plain = printed(judged(as_object((judge(claim(0.5), lab=None),)), "toy"))
    assert "why" not in "\n".join(plain)


def test_a_headline_stands_once() -> None:
    claims = (claim(0.5, id=f"toy.{n}", headline=n[0]) for n in ("a1", "b", "a2"))
    verdicts = tuple(judge(one, lab=None) for one in claims)
    lines = printed(judged(as_object(verdicts), "toy"))
    assert [x for x in lines if x.startswith("toy: ")] == ["toy: a", "toy: b"]


def test_a_stored_run_that_refuted_says_what_failed() -> None:
    stored = Stored("refuted", 1.06, "paper", 10, reason="rest 0.17, expected <= 0.06")
    assert stored.came_out == "refuted: rest 0.17, expected <= 0.06"
    assert Stored("confirmed", 1.06, "paper", 10).came_out == "confirmed, 1.06"


@pytest.mark.parametrize("width", [60, 72, 80, 100, 200])
def test_any_width_from_60_serves(found: Judged, width: int) -> None:
    lines = [line for line in printed(found, width) if "[0.1" in line]
    assert len(lines) == 2
    assert all(len(line) <= width for line in lines)


def test_reasons_nulls_and_our_own_are_told_on_demand(found: Judged) -> None:
    text = "\n".join(printed(found, verbose=True))
    assert "why: size 2, expected in [0.1, 0.9]" in text
    assert "null: untrained: 0.05" in text
    assert "✓ confirmed    own" in text


def test_what_is_only_shown_stands_beside_its_claim() -> None:
    shown = (Shown("replayed", lambda _lab: [0.25, 0.75]),)
    verdicts = (judge(claim(0.5, shown=shown), lab=None),)
    found = judged(as_object(verdicts), "toy")
    assert "shown: replayed: 0.5" in "\n".join(printed(found, verbose=True))
    assert "replayed" not in "\n".join(printed(found))


def test_brackets_in_names_are_text_not_markup(found: Judged) -> None:
    page = Console(width=100, force_terminal=False)
    with page.capture() as capture:
        print_claim(page, found, found.leaves[0])
    assert "Sizes [bold] are < 1 & positive. [/INST]" in capture.get()


def test_a_claim_is_told_with_all_that_is_known(found: Judged) -> None:
    page = Console(width=100, force_terminal=False)
    with page.capture() as capture:
        print_claim(page, found, found.leaves[0])
    text = capture.get()
    for part in ("toy.size: confirmed", "weight 3", "paper's value: 0.5", "rule: mean"):
        assert part in text
    assert "by replicate: 0.5, 0.5, 0.5" in text


def test_the_summary_has_a_line_for_each_study(found: Judged) -> None:
    page = Console(width=60, force_terminal=False)
    with page.capture() as capture:
        print_summary(page, [found, found])
    _heading, first, second = capture.get().splitlines()
    assert first == second
    assert first.split() == ["toy", "75%", "1", "1", "0", "0"]


def test_an_interval_is_shown_where_it_has_a_width() -> None:
    assert measured(Reading("x", "> 0", (1.0, 2.0), 0.5, 2.5)) == "1.5 [0.5, 2.5]"
    assert measured(Reading("x", "> 0", (2.0, 2.0), 2.0, 2.0)) == "2"
    assert measured(Reading("x", "> 0", (None, 2.0))) == "undefined"
    assert measured(Reading("x", "> 0", ())) == ""


def test_without_a_terminal_the_page_has_a_fixed_width(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = console()
    assert page.width == 100
    page.print("x")
    assert capsys.readouterr().out == "x\n"


def test_a_narrow_terminal_explains_its_signs(found: Judged) -> None:
    told = "✓ confirmed, ✗ refuted, ? inconclusive, · not tested"
    assert told in printed(found, 60)
    assert told not in printed(found, 80)
