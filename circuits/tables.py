"""Verdicts as tables: rich on a terminal, HTML in a notebook."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from .claims import Verdict

WIDTH = 150
"""Columns of the claims table where there is no terminal to ask."""


def console() -> Console:
    """Where tables are printed: the terminal, or a wide page without one."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=WIDTH)


def outcome(verdict: Verdict) -> str:
    """One or two words for a verdict."""
    if not verdict.claim.gated:
        return "as expected" if verdict.passed else "differs"
    return "confirmed" if verdict.passed else "NOT CONFIRMED"


def print_verdicts(page: Console, title: str, verdicts: Sequence[Verdict]) -> None:
    """Print the claims table and a line that counts the outcomes."""
    table = Table(title=title, title_justify="left", show_lines=False)
    for heading in ("claim", "measured", "expected", "paper", "control", "verdict"):
        keep = heading in ("claim", "paper", "verdict")
        table.add_column(heading, overflow="fold", no_wrap=keep)
    for verdict in verdicts:
        colour = "green" if verdict.passed else "red"
        if not verdict.claim.gated:
            colour = "cyan" if verdict.passed else "yellow"
        table.add_row(*_cells(verdict), f"[{colour}]{outcome(verdict)}[/]")
    page.print(table)
    page.print(summary(verdicts))
    for verdict in verdicts:
        if not verdict.passed:
            page.print(f"{outcome(verdict)}: {verdict.claim.id}: ", end="")
            page.print(verdict.claim.statement, markup=False, highlight=False)


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many of the gated and of the exploratory claims came out as expected."""
    gated = [v for v in verdicts if v.claim.gated]
    open_ones = [v for v in verdicts if not v.claim.gated]
    text = f"{sum(v.passed for v in gated)} of {len(gated)} gated claims confirmed"
    if open_ones:
        agreeing = sum(v.passed for v in open_ones)
        text += f"; {agreeing} of {len(open_ones)} exploratory ones as expected"
    return text


@dataclass(frozen=True)
class VerdictTable:
    """Verdicts that show themselves as a table in a notebook."""

    verdicts: Sequence[Verdict]

    def _repr_html_(self) -> str:
        return verdict_html(self.verdicts)


def verdict_html(verdicts: Sequence[Verdict]) -> str:
    """The claims table for a notebook."""
    headings = ("claim", "statement", "measured", "expected", "paper", "control", "")
    head = "".join(f"<th style='text-align:left'>{h}</th>" for h in headings)
    rows = []
    for verdict in verdicts:
        name, *cells = _cells(verdict)
        texts = [name, verdict.claim.statement, *cells, outcome(verdict)]
        tint = "#e6f4ea" if verdict.passed else "#fdeceb"
        columns = "".join(
            f"<td style='text-align:left'>{html.escape(text)}</td>" for text in texts
        )
        rows.append(f"<tr style='background:{tint};color:#111'>{columns}</tr>")
    body = "".join(rows)
    return f"<table><tr>{head}</tr>{body}</table><p>{summary(verdicts)}</p>"


def _cells(verdict: Verdict) -> tuple[str, str, str, str, str]:
    claim, control = verdict.claim, verdict.observed.control
    low, high = verdict.ci95
    measured = f"{verdict.mean:.4g}"
    if f"{low:.4g}" != f"{high:.4g}":
        measured += f" ({low:.4g}, {high:.4g})"
    mean_control = sum(control) / len(control)
    return (
        claim.id,
        measured,
        claim.expected,
        "" if claim.paper is None else f"{claim.paper:.4g}",
        f"{claim.control.name}: {mean_control:.4g} ({claim.control.expected})",
    )
