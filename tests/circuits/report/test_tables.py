"""Verdicts as tables: the scores first, then the tree."""

from dataclasses import replace

import pytest
from rich.console import Console

from circuits.claims import Claim, Null, Verdict, judge
from circuits.conditions import Mean
from circuits.report.tables import console, print_verdicts, scores, verdict_html


def claim(value: float, **changes: object) -> Claim:
    claim = Claim(
        "toy.size",
        "Sizes [bold] are < 1 & positive.",
        source="Section 1",
        kind="behaviour",
        conditions=(Mean("size", "in [0.1, 0.9]", lambda _lab: [value] * 3),),
        nulls=(Null("untrained", measure=lambda _lab: [0.05]),),
        headline="Sizes",
        weight=3,
        paper=0.5,
    )
    return replace(claim, **changes)  # type: ignore[arg-type]


VERDICTS = tuple(
    judge(each, lab=None)
    for each in (
        claim(0.5),
        claim(2.0, id="toy.large", weight=1),
        claim(0.5, id="toy.own", origin="ours", paper=None, headline="Ours"),
    )
)


def printed(verdicts: tuple[Verdict, ...]) -> str:
    page = Console(width=150, record=True, force_terminal=False, quiet=False)
    with page.capture() as capture:
        print_verdicts(page, "toy, quick", verdicts)
    return capture.get()


def test_the_two_scores_count_by_weight_and_by_word() -> None:
    assert scores(VERDICTS) == [
        "paper score: 75% confirmed by weight, 100% tested (1 confirmed, 1 refuted)",
        "own score: 100% confirmed by weight, 100% tested (1 confirmed)",
    ]
    assert len(scores(VERDICTS[:2])) == 1


def test_the_scores_come_first_and_the_tree_follows() -> None:
    lines = printed(VERDICTS).splitlines()
    assert lines[0] == "toy, quick"
    assert lines[1].startswith("paper score: 75%")
    assert lines[2].startswith("own score")
    text = "\n".join(lines)
    assert text.index("Sizes") < text.index("toy.size") < text.index("Ours")


def test_a_row_shows_value_expectation_paper_nulls_and_verdict() -> None:
    row = next(r for r in printed(VERDICTS[:1]).splitlines() if "toy.size" in r)
    for cell in ("0.5", "in [0.1, 0.9]", "untrained: 0.05", "confirmed"):
        assert cell in row


def test_what_is_not_confirmed_gives_its_reason_below_the_table() -> None:
    assert "refuted: toy.large: size 2, expected in [0.1, 0.9]" in printed(VERDICTS)


def test_html_is_escaped_and_has_a_row_for_each_verdict() -> None:
    page = verdict_html(VERDICTS)
    assert page.count("<tr") == 1 + len(VERDICTS)
    assert "are &lt; 1 &amp; positive" in page
    assert "paper score: 75%" in page


def test_without_a_terminal_the_page_is_wide(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = console()
    assert page.width >= 150
    page.print("x")
    assert capsys.readouterr().out == "x\n"
