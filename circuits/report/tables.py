"""Verdicts as tables: rich on a terminal, HTML in a notebook.

The two scores come first, then the tree: headline by headline, a line for each claim.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from circuits.claims import Verdict
from circuits.confirm import holm_by_headline, score

WIDTH = 150
"""Columns of the claims table where there is no terminal to ask."""

COLOURS = {
    "confirmed": "green",
    "refuted": "red",
    "inconclusive": "yellow",
    "not tested": "bright_black",
}
TINTS = {
    "confirmed": "#e6f4ea",
    "refuted": "#fdeceb",
    "inconclusive": "#fff7e0",
    "not tested": "#f1f1f1",
}


def console() -> Console:
    """Where tables are printed: the terminal, or a wide page without one."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=WIDTH)


def print_verdicts(
    page: Console,
    title: str,
    verdicts: Sequence[Verdict],
    stored: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Print the scores, the tree and the reasons of what is not confirmed.

    Args:
        page: where to.
        title: the first line.
        verdicts: in the order of the tree.
        stored: claim -> what a run at the paper's size said of it.
    """
    page.print(title, markup=False, highlight=False)
    for line in scores(verdicts):
        page.print(line, markup=False, highlight=False)
    table = Table(show_lines=False)
    headings = ("claim", "measured", "expected", "paper", "nulls", "Holm p", "verdict")
    for heading in headings:
        keep = heading in ("claim", "paper", "verdict")
        table.add_column(heading, overflow="fold", no_wrap=keep)
    adjusted = holm_by_headline(verdicts)
    for headline, claims in groupby(verdicts, key=lambda v: v.claim.headline):
        if headline:
            table.add_row(f"[bold]{escape(headline)}[/]")
        for verdict in claims:
            cells = [escape(cell) for cell in _cells(verdict)]
            p = adjusted.get(verdict.claim.id)
            cells.append("" if p is None else f"{p:.2g}")
            table.add_row(*cells, f"[{COLOURS[verdict.word]}]{_word(verdict)}[/]")
    page.print(table)
    for line in _remarks(verdicts, stored or {}):
        page.print(line, markup=False, highlight=False)


def _remarks(
    verdicts: Sequence[Verdict], stored: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Why a claim is not confirmed, and what a stored run said where this cannot."""
    for verdict in verdicts:
        if not verdict.passed:
            yield f"{verdict.word}: {verdict.claim.id}: {verdict.reason}"
        long_run = stored.get(verdict.claim.id)
        if long_run and verdict.word not in ("confirmed", "refuted"):
            yield f"    stored run: {_stored(long_run)}"


def _stored(found: Mapping[str, Any]) -> str:
    """The verdict of a stored run on one line."""
    mean = "" if found["mean"] is None else f", {found['mean']:.4g}"
    where = f"preset {found['preset']}, {len(found['seeds'])} seeds"
    return f"{found['verdict']}{mean} ({where})"


def scores(verdicts: Sequence[Verdict]) -> list[str]:
    """One line for what the paper asserts, one for what is ours."""
    lines = []
    for origin, name in (("paper", "paper score"), ("ours", "own score")):
        found = score(verdicts, origin)
        if found["weighted"] is None:
            continue
        counts = ", ".join(
            f"{found[word.replace(' ', '_')]} {word}"
            for word in COLOURS
            if found[word.replace(" ", "_")]
        )
        share = f"{found['weighted']:.0%} confirmed by weight"
        lines.append(f"{name}: {share}, {found['tested']:.0%} tested ({counts})")
    return lines


@dataclass(frozen=True)
class VerdictTable:
    """Verdicts that show themselves as a table in a notebook."""

    verdicts: Sequence[Verdict]

    def _repr_html_(self) -> str:
        return verdict_html(self.verdicts)


def verdict_html(verdicts: Sequence[Verdict]) -> str:
    """The claims table for a notebook."""
    headings = ("claim", "statement", "measured", "expected", "paper", "nulls", "")
    head = "".join(f"<th style='text-align:left'>{h}</th>" for h in headings)
    rows = []
    for verdict in verdicts:
        name, *cells = _cells(verdict)
        texts = [name, verdict.claim.statement, *cells, _word(verdict)]
        columns = "".join(
            f"<td style='text-align:left'>{html.escape(text)}</td>" for text in texts
        )
        tint = TINTS[verdict.word]
        rows.append(f"<tr style='background:{tint};color:#111'>{columns}</tr>")
    lines = "".join(f"<p>{line}</p>" for line in scores(verdicts))
    return f"{lines}<table><tr>{head}</tr>{''.join(rows)}</table>"


def _word(verdict: Verdict) -> str:
    return verdict.word if verdict.claim.origin == "paper" else f"{verdict.word} (ours)"


def _cells(verdict: Verdict) -> tuple[str, str, str, str, str]:
    claim = verdict.claim
    paper = "" if claim.paper is None else f"{claim.paper:.4g}"
    measured = expected = ""
    if verdict.conditions:
        first = verdict.conditions[0]
        low, high = first.interval
        measured = f"{first.mean:.4g}"
        if f"{low:.4g}" != f"{high:.4g}":
            measured += f" ({low:.4g}, {high:.4g})"
        expected = first.condition.expected
    nulls = [f"{n.name}: {_mean(n.values)} ({n.expected})" for n in verdict.nulls]
    return claim.id, measured, expected, paper, "; ".join(nulls)


def _mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.4g}" if values else "none"
