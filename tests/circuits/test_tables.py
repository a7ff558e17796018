"""Verdicts as tables."""

from dataclasses import replace

import pytest
from rich.console import Console

from circuits.claims import Claim, Control, Observed, Verdict
from circuits.tables import console, outcome, print_verdicts, summary, verdict_html

CLAIM = Claim(
    id="toy.size",
    statement="Sizes [bold] are < 1 & positive.",
    source="Section 1",
    kind="behaviour",
    expected="in [0.1, 0.9]",
    control=Control("untrained", "<= 0.3"),
    paper=0.5,
)
OPEN = replace(CLAIM, id="toy.open", gated=False, paper=None)


def verdict(value: float, claim: Claim = CLAIM) -> Verdict:
    return Verdict(claim, Observed.of([value, value], [0.25]))


VERDICTS = (verdict(0.5), verdict(2.0), verdict(0.5, OPEN), verdict(2.0, OPEN))


def printed(verdicts: tuple[Verdict, ...]) -> str:
    page = Console(width=150, record=True, force_terminal=False, quiet=False)
    with page.capture() as capture:
        print_verdicts(page, "toy, quick", verdicts)
    return capture.get()


def test_each_outcome_has_its_words() -> None:
    assert [outcome(v) for v in VERDICTS] == [
        "confirmed",
        "NOT CONFIRMED",
        "as expected",
        "differs",
    ]


def test_the_summary_counts_gated_and_exploratory_claims_apart() -> None:
    assert summary(VERDICTS[:2]) == "1 of 2 gated claims confirmed"
    assert summary(VERDICTS) == (
        "1 of 2 gated claims confirmed; 1 of 2 exploratory ones as expected"
    )


def test_the_table_shows_value_expectation_paper_control_and_verdict() -> None:
    row = next(r for r in printed(VERDICTS[:1]).splitlines() if "toy.size" in r)
    for cell in ("0.5", "in [0.1, 0.9]", "untrained: 0.25 (<= 0.3)", "confirmed"):
        assert cell in row


def test_what_is_not_confirmed_is_spelled_out_below_the_table() -> None:
    page = printed(VERDICTS)
    assert "NOT CONFIRMED: toy.size: Sizes [bold] are < 1 & positive." in page
    assert "differs: toy.open:" in page
    assert page.count("Sizes [bold]") == 2


def test_an_interval_is_shown_where_the_seeds_differ() -> None:
    spread = Verdict(CLAIM, Observed.of([0.2, 0.4, 0.6], [0.25]))
    low, high = spread.ci95
    assert f"0.4 ({low:.4g}, {high:.4g})" in printed((spread,))


def test_html_is_escaped_and_has_a_row_for_each_verdict() -> None:
    page = verdict_html(VERDICTS)
    assert page.count("<tr") == 1 + len(VERDICTS)
    assert "are &lt; 1 &amp; positive" in page
    assert "1 of 2 gated claims confirmed" in page


def test_without_a_terminal_the_page_is_wide(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = console()
    assert page.width >= 150
    page.print("x")
    assert capsys.readouterr().out == "x\n"
