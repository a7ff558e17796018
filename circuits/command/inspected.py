"""What `inspect` prints: the answer's fate by layer, and what stands out."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from circuits.inspection.attention import AttentionReading
    from circuits.inspection.comparison import Comparison
    from circuits.inspection.inspect import Inspection
    from probes.measurement import Measurement

SHOWN_LAYERS = 10
"""Rows of the printed table; the JSON has every layer."""

SHOWN_HEADS = 3
"""Heads that are printed of every look at a role."""


def print_inspection(page: "Console", inspection: "Inspection") -> None:
    """The answer's fate by layer, the model's own next tokens, what stands out."""
    from rich.text import Text

    from circuits.report.terminal import say

    lens, answer = inspection.lens, inspection.answer
    title = f"{inspection.model}: {shortened(inspection.text)!r}"
    headings = ("layer", f"rank of {answer}", "log p (nats)", "top token there")
    table = _table(title, headings)
    layers, last = lens.rank.labels["layer"], inspection.shown.index(_end(inspection))
    for place in _spread(len(layers)):
        table.add_row(
            str(layers[place]),
            f"{float(lens.rank.values[place, 0]):g}",
            f"{float(lens.log_prob.values[place, 0]):.2f}",
            Text(lens.tokens[place][last]),
        )
    page.print(table)
    top = ", ".join(f"{token} {value:.3f}" for token, value in inspection.top)
    say(page, f"next token: {top}")
    say(page, f"answer followed: {answer} ({inspection.answer_source})")
    _say_answers(page, inspection)
    if inspection.hint is not None:
        say(page, f"hint: {inspection.hint}")
    if inspection.attention is not None:
        _say_attention(page, inspection.attention)
    if inspection.alignment is not None:
        _say_alignment(page, inspection.alignment)
    if inspection.patching is not None:
        grid = inspection.patching
        say(page, f"{grid.name}: largest {_largest(grid)}")


def print_comparison(page: "Console", found: "Comparison") -> None:
    """Both models' answers by layer, and where they differ most."""
    from circuits.report.terminal import say

    beside, changes = found.beside(), found.differences()
    one, other = found.models
    say(page, f"{one} against {other}: {shortened(found.one.text)!r}")
    say(page, f"change: {found.change}")
    say(page, f"answer followed: {found.one.answer} ({found.one.answer_source})")
    headings = ("layer", "log p", "against", "change", "rank", "against")
    table = _table("", headings)
    layers = beside["rank"].labels["layer"]
    for place in _spread(len(layers)):
        log_probs = beside["log_prob"].values[:, place].tolist()
        change = float(changes["log_prob"].values[place])
        ranks = beside["rank"].values[:, place].tolist()
        table.add_row(
            str(layers[place]),
            *(f"{value:.2f}" for value in log_probs),
            f"{change:+.2f}",
            *(f"{value:g}" for value in ranks),
        )
    page.print(table)
    for name, grid in changes.items():
        if name not in ("log_prob", "rank"):
            say(page, f"{grid.name}: largest {_largest(grid, signed=True)}")


def shortened(text: str, most: int = 240) -> str:
    """A prompt, without its middle if it is long."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} ... {text[-most // 2 :]}"


def _end(inspection: "Inspection") -> int:
    return len(inspection.tokens) - 1


def _table(title: str, headings: tuple[str, ...]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, title_justify="left")
    for heading in headings:
        table.add_column(Text(heading), justify="right")
    return table


def _say_answers(page: "Console", inspection: "Inspection") -> None:
    """Of several accepted answers, each at the last layer."""
    from circuits.report.terminal import say

    found = inspection.answers
    names = found.rank.labels["answer"]
    if len(names) > 1:
        ends = zip(names, found.log_prob.values, found.rank.values, strict=True)
        each = (f"{n} {float(p[-1]):.2f} (rank {float(r[-1]):g})" for n, p, r in ends)
        say(page, f"log p of each at the end: {', '.join(each)}")


def _say_attention(page: "Console", found: "AttentionReading") -> None:
    from circuits.report.terminal import say

    heads = ", ".join(map(str, found.patterns.labels["head"]))
    say(page, f"heads whose last token looks hardest (layer.head): {heads}")
    if found.mass is None:
        return
    own, null = found.mass.values
    n_heads, layers = own.shape[-1], found.mass.labels["layer"]
    for look, masses, others in zip(found.mass.labels["look"], own, null, strict=True):
        best = (masses - others).flatten().argsort(descending=True)[:SHOWN_HEADS]
        places = [divmod(place, n_heads) for place in best.tolist()]
        said = (
            f"{layers[a]}.{b} {float(masses[a, b]):.2f} "
            f"(elsewhere {float(others[a, b]):.2f})"
            for a, b in places
        )
        say(page, f"attention mass of {look}: {', '.join(said)}")


def _say_alignment(page: "Console", found: "Measurement") -> None:
    """For every pair the layer at which it stands out most from other tokens."""
    from circuits.report.terminal import say

    cosines, others, _, _, near = found.values
    for pair, name in enumerate(found.labels["pair"]):
        best = int((cosines[pair] - others[pair]).nan_to_num(-2).argmax())
        layer = found.labels["layer"][best]
        say(
            page,
            f"alignment of {name}: {float(cosines[pair, best]):.2f} at layer {layer} "
            f"(other tokens {float(others[pair, best]):.2f}; "
            f"{float(near[pair, best]):.0%} as near)",
        )


def _largest(grid: "Measurement", *, signed: bool = False) -> str:
    """The largest value of a grid and its place; signed, the largest of either sign."""
    import torch

    sizes = grid.values.abs() if signed else grid.values
    place = torch.unravel_index(sizes.nan_to_num(-torch.inf).argmax(), sizes.shape)
    value = float(grid.values[place])
    labels = (
        f"{axis} {grid.labels[axis][int(at)]}"
        for axis, at in zip(grid.axes, place, strict=True)
    )
    return f"{value:{'+' if signed else ''}.2f} at {', '.join(labels)}"


def _spread(n: int) -> list[int]:
    """At most `SHOWN_LAYERS` places from the first to the last."""
    if n <= SHOWN_LAYERS:
        return list(range(n))
    return [round(i * (n - 1) / (SHOWN_LAYERS - 1)) for i in range(SHOWN_LAYERS)]
