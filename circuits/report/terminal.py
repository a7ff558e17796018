"""Verdicts on a terminal: the tree with a line for each claim, then the scores.

Headlines are printed as they are judged, so the scores come last. Any width from 60
columns serves: a narrow terminal shows a sign for the verdict, a wide one its word too.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trained.store import name_of

from .verdicts import WORDS, Branch, Judged, Leaf, Reading, judged, tally

if TYPE_CHECKING:
    from circuits.confirm import Confirmation

WIDTH = 100
"""Columns where there is no terminal to ask."""

WIDE = 80
"""Columns from which on a verdict is a word, not only a sign."""

COLOURS = {
    "confirmed": "green",
    "refuted": "red",
    "inconclusive": "yellow",
    "not tested": "bright_black",
}
SIGNS = {"confirmed": "✓", "refuted": "✗", "inconclusive": "?", "not tested": "·"}


def console(*, stderr: bool = False) -> Console:
    """Where words are printed: the terminal, or a page of fixed width without one."""
    terminal = Console(stderr=stderr)
    return terminal if terminal.is_terminal else Console(width=WIDTH, stderr=stderr)


def say(page: Console, line: str, *, style: str = "") -> None:
    """Print a line as it is: brackets in a name or prompt are no markup.

    On a terminal it breaks between words; a path stays whole, to be copied.
    """
    whole = not page.is_terminal or " " not in line.strip()
    page.print(Text(line, style=style), soft_wrap=whole)


def print_confirmation(
    page: Console, done: "Confirmation", *, verbose: bool = False
) -> None:
    """Print what was just judged."""
    found, where = _read(done)
    print_tree(page, found, where, verbose=verbose)


def print_part(page: Console, part: "Confirmation", *, verbose: bool) -> None:
    """Print headlines that were just judged, while others are not yet."""
    print_branches(page, _read(part)[0], verbose=verbose, own=verbose)


def print_end(page: Console, done: "Confirmation", *, verbose: bool) -> None:
    """Print what is left once all headlines are printed: the scores."""
    found, where = _read(done)
    if not (verbose or found.branches):
        print_branches(page, found, verbose=False, own=True)
    print_scores(page, found, where, verbose=verbose)


def _read(done: "Confirmation") -> tuple[Judged, str]:
    where = name_of(done.run) if done.run else str(done.model)
    return judged(done.as_dict(), where), where


def print_tree(page: Console, found: Judged, where: str, *, verbose: bool) -> None:
    """Print the tree, then the scores; what is ours only in its score unless asked for.

    Args:
        page: where to.
        found: the verdicts of a study.
        where: the run or model they are about.
        verbose: also our own claims, reasons, nulls and controls.
    """
    own = verbose or not found.branches
    print_branches(page, found, verbose=verbose, own=own)
    print_scores(page, found, where, verbose=verbose)


def print_branches(page: Console, found: Judged, *, verbose: bool, own: bool) -> None:
    """Print a line for each claim, headline by headline."""
    for branch in (*found.branches, *(found.own if own else ())):
        _print_branch(page, found.study, branch, verbose=verbose)


def print_scores(page: Console, found: Judged, where: str, *, verbose: bool) -> None:
    """Print what was judged, how, and how much of it is confirmed."""
    took = "" if found.seconds is None else f", {found.seconds:.0f} s"
    seeds = f"{len(found.seeds)} seed" + "s" * (len(found.seeds) != 1)
    on = f", {found.model}" if found.model not in ("", where) else ""
    say(page, f"\n{found.study}, preset {found.preset}, {seeds}{took}{on}, {where}")
    for line in score_lines(found):
        say(page, line, style="bold")
    if page.width < WIDE:
        say(page, ", ".join(f"{sign} {word}" for word, sign in SIGNS.items()))
    if not verbose:
        say(page, f"details: --verbose, or reasonscope claim ID {where}")


def score_lines(found: Judged) -> list[str]:
    """One line for what the paper asserts, one for what is ours."""
    lines = []
    for name, branches in (("paper score", found.branches), ("own score", found.own)):
        leaves = [leaf for branch in branches for leaf in branch.leaves]
        if leaves:
            known = tally(leaves)
            counts = ", ".join(f"{n} {w}" for w, n in known.counts.items() if n)
            share = f"{known.score:.0%} confirmed by weight, {known.tested:.0%} tested"
            lines.append(f"{name}: {share} ({counts})")
    return lines


def print_summary(page: Console, all_found: Sequence[Judged]) -> None:
    """Print a line for each study: the scores of all papers side by side."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("study", no_wrap=True)
    for heading in ("score", *(SIGNS.values() if page.width < WIDE else WORDS)):
        table.add_column(heading, justify="right", no_wrap=True)
    for found in all_found:
        known = tally([leaf for branch in found.branches for leaf in branch.leaves])
        counts = [str(known.counts[word]) for word in WORDS]
        score = f"{known.score:.0%}" if known.total else "-"
        table.add_row(Text(found.study), score, *counts)
    page.print(table)


def _print_branch(page: Console, study: str, branch: Branch, *, verbose: bool) -> None:
    say(page, f"\n{study}: {branch.headline or 'claims'}", style="bold")
    names = [leaf.id.removeprefix(f"{study}.") for leaf in branch.leaves]
    widest = max(map(len, names))
    for leaf, name in zip(branch.leaves, names, strict=True):
        page.print(_line(leaf, name, widest, page.width), soft_wrap=True)
        for note in _notes(leaf) if verbose else _short_notes(leaf):
            page.print(Padding(Text(note, style="bright_black"), (0, 0, 0, 4)))


def _line(leaf: Leaf, name: str, widest: int, width: int) -> Text:
    """Verdict, claim, what was measured, what was expected; two lines if too long."""
    words = max(map(len, WORDS))
    verdict = SIGNS[leaf.verdict]
    if width >= WIDE:
        verdict += f" {leaf.verdict:<{words}}"
    value = ""
    if found := leaf.decisive:
        value = f"{measured(found):<{24 if width >= WIDE else 18}} {found.expected}"
    head, gap = f"{name:<{widest}}", " "
    if len(verdict) + 2 + widest + len(value) > width:
        gap = "\n    "
    line = Text(f"{verdict} ", style=COLOURS[leaf.verdict])
    return line.append(f"{head}{gap}{value}".rstrip(), style="default")


def measured(reading: Reading) -> str:
    """A mean with its interval, where it has a width."""
    if reading.mean is None:
        return "undefined" if reading.values else ""
    low, high = number(reading.low), number(reading.high)
    spread = f" [{low}, {high}]" if low != high else ""
    return f"{number(reading.mean)}{spread}"


def number(value: float | None) -> str:
    """Three digits that say something."""
    return "?" if value is None else f"{value:.3g}"


def _short_notes(leaf: Leaf) -> Iterator[str]:
    """What the line itself would leave unclear."""
    yield from _stored_note(leaf)
    found = leaf.decisive
    if leaf.verdict == "inconclusive" and found and found.state == "holds":
        # The value is as expected: the doubt is a control's, a null's or the number's.
        yield f"why: {leaf.reason}"


def _stored_note(leaf: Leaf) -> Iterator[str]:
    """What a stored run at the paper's size said, where this one does not decide."""
    known = ("confirmed", "refuted")
    if leaf.stored and leaf.verdict not in (*known, leaf.stored.verdict):
        where = f"preset {leaf.stored.preset}, {leaf.stored.n_seeds} seeds"
        yield f"stored run ({where}): {leaf.stored.came_out}"


def _notes(leaf: Leaf) -> Iterator[str]:
    """All that stands beside a claim, a line each."""
    yield from _stored_note(leaf)
    if leaf.reason:
        yield f"why: {leaf.reason}"
    named = (
        ("precondition", leaf.preconditions),
        ("also", [one for one in leaf.conditions if one is not leaf.decisive]),
        ("control", leaf.controls),
        ("null", leaf.nulls),
        ("shown", leaf.shown),
    )
    for title, readings in named:
        yield from (f"{title}: {described(reading)}" for reading in readings)


def described(reading: Reading) -> str:
    """A quantity, what was measured, what was expected and how it came out."""
    value = measured(reading) or "not measured"
    expected = f", expected {reading.expected}" if reading.expected else ""
    state = f" ({reading.state})" if reading.state else ""
    return f"{reading.name}: {value}{expected}{state}"


def print_claim(page: Console, found: Judged, leaf: Leaf) -> None:
    """Print all that is known of one claim."""
    say(page, f"{leaf.id}: {leaf.verdict}", style=f"bold {COLOURS[leaf.verdict]}")
    for line in _facts(found, leaf):
        say(page, line)
    groups = (
        ("preconditions", leaf.preconditions),
        ("conditions", leaf.conditions),
        ("controls", leaf.controls),
        ("nulls", leaf.nulls),
        ("shown, deciding nothing", leaf.shown),
    )
    for title, readings in groups:
        if readings:
            say(page, f"\n{title}", style="bold")
        for reading in readings:
            say(page, f"  {described(reading)}")
            if reading.rule:
                say(page, f"    rule: {reading.rule}")
            if reading.values:
                values = ", ".join(number(value) for value in reading.values)
                say(page, f"    by replicate: {values}")
    say(page, f"\nrepeat: {leaf.command}")


def _facts(found: Judged, leaf: Leaf) -> Iterator[str]:
    yield leaf.statement
    whose = f"weight {leaf.weight}" if leaf.origin == "paper" else "ours"
    yield f"source: {leaf.source}; {leaf.kind}; {whose}"
    if leaf.paper is not None:
        yield f"paper's value: {number(leaf.paper)}"
    if leaf.reason:
        yield f"why: {leaf.reason}"
    yield from _stored_note(leaf)
    if leaf.revised:
        yield f"revised: {leaf.revised}"
    seeds = ", ".join(map(str, found.seeds))
    yield f"preset {found.preset}, seeds {seeds}"
    if leaf.holm is not None:
        yield f"p = {leaf.holm:.2g}, adjusted over its headline (Holm)"
