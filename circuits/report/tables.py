"""Verdicts as a table in a notebook."""

import html
from typing import Any

from .terminal import measured, number, score_lines
from .verdicts import Leaf, judged

TINTS = {
    "confirmed": "#e6f4ea",
    "refuted": "#fdeceb",
    "inconclusive": "#fff7e0",
    "not tested": "#f1f1f1",
}


def verdict_html(verdicts: Any) -> str:
    """The scores and a row for each claim of what `Confirmation.as_dict` gives."""
    found = judged(verdicts, "this")
    headings = ("claim", "statement", "measured", "expected", "paper", "nulls", "")
    head = "".join(f"<th style='text-align:left'>{h}</th>" for h in headings)
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in score_lines(found))
    rows = "".join(_row(leaf) for leaf in found.leaves)
    return f"{lines}<table><tr>{head}</tr>{rows}</table>"


def _row(leaf: Leaf) -> str:
    found = leaf.decisive
    cells = (
        leaf.id,
        leaf.statement,
        measured(found) if found else "",
        found.expected if found else "",
        "" if leaf.paper is None else number(leaf.paper),
        "; ".join(f"{null.name}: {measured(null)}" for null in leaf.nulls),
        leaf.verdict if leaf.origin == "paper" else f"{leaf.verdict} (ours)",
    )
    columns = "".join(
        f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in cells
    )
    return f"<tr style='background:{TINTS[leaf.verdict]};color:#111'>{columns}</tr>"
