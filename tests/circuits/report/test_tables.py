"""Verdicts as a table in a notebook."""

from dataclasses import replace
from typing import Any

from circuits.claims import Claim, Null, Verdict, judge
from circuits.conditions import Mean
from circuits.report.tables import verdict_html


def claim(value: float, **changes: object) -> Claim:
    claim = Claim(
        "toy.size",
        "Sizes [bold] are < 1 & positive. [/INST]",
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


def as_object(verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """What a confirmation of these verdicts would write."""
    return {
        "schema": 2,
        "study": "toy",
        "preset": "quick",
        "seeds": [301, 302, 303],
        "verdicts": [verdict.as_dict() for verdict in verdicts],
    }


def test_html_is_escaped_and_has_a_row_for_each_verdict() -> None:
    page = verdict_html(as_object(VERDICTS))
    assert page.count("<tr") == 1 + len(VERDICTS)
    assert "are &lt; 1 &amp; positive" in page
    assert "paper score: 75%" in page
