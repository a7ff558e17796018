"""The verb `inspect`: open the model, look, print, write."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from circuits.inspection.figures import all_figures
from circuits.inspection.inspect import Inspection, inspect
from circuits.inspection.request import InspectRequest
from circuits.inspection.subject import look_at
from circuits.models import open as pretrained
from circuits.tables import console
from probes.figures import save
from probes.measurement import Measurement
from trained.store import write_json

SHOWN_LAYERS = 10
"""Rows of the printed table; the JSON has every layer."""


def run_inspect(request: InspectRequest, *, as_json: bool) -> None:
    """Inspect every prompt of a request, print what was found and write it."""
    model = pretrained.open(
        request.model, backend=request.backend, device=request.device
    )
    found = [
        inspect(look_at(model, prompt, request.answer), request)
        for prompt in request.prompts
    ]
    objects = [inspection.as_dict() for inspection in found]
    whole = objects[0] if len(objects) == 1 else objects
    if as_json:
        print(json.dumps(whole, indent=1))
    else:
        for inspection in found:
            print_inspection(console(), inspection)
    if request.out is not None:
        write_json(request.out / "inspect.json", whole)
        files = _draw(found, request.out)
        if not as_json:
            print("\n".join(str(file) for file in files))


def print_inspection(page: Console, inspection: Inspection) -> None:
    """The answer's fate by layer, and the model's own next tokens."""
    subject, lens = inspection.subject, inspection.lens
    table = Table(title=f"{subject.model.name}: {subject.text!r}", title_justify="left")
    answer = subject.show(subject.answer)
    for heading in ("layer", f"rank of {answer}", "log p (nats)", "top token there"):
        table.add_column(heading, justify="right")
    layers = lens.answer_rank.labels["layer"]
    for place in _spread(len(layers)):
        table.add_row(
            str(layers[place]),
            f"{float(lens.answer_rank.values[place]):g}",
            f"{float(lens.answer_logprob.values[place]):.2f}",
            lens.top_tokens[place][-1],
        )
    page.print(table)
    top = ", ".join(f"{token} {value:.3f}" for token, value in subject.top)
    page.print(f"next token: {top}", markup=False, highlight=False)
    page.print(f"answer followed: {answer} ({subject.answer_source})", markup=False)
    if inspection.attention is not None:
        heads = ", ".join(map(str, inspection.attention.patterns.labels["head"]))
        page.print(f"heads whose last token looks hardest (layer.head): {heads}")
    for grid in (inspection.alignment, inspection.patching):
        if grid is not None:
            page.print(f"{grid.name}: {_largest(grid)}", markup=False, highlight=False)


def _largest(grid: Measurement) -> str:
    """The largest value of a grid and its place."""
    layer, position = divmod(int(grid.values.argmax()), grid.values.shape[1])
    where = grid.labels["layer"][layer], grid.labels["position"][position]
    return f"largest {float(grid.values.max()):.2f} at layer {where[0]}, {where[1]}"


def _spread(n: int) -> list[int]:
    """At most `SHOWN_LAYERS` places from the first to the last."""
    if n <= SHOWN_LAYERS:
        return list(range(n))
    return [round(i * (n - 1) / (SHOWN_LAYERS - 1)) for i in range(SHOWN_LAYERS)]


def _draw(found: list[Inspection], folder: Path) -> list[Path]:
    files = []
    for number, inspection in enumerate(found):
        prefix = f"{number}-" if len(found) > 1 else ""
        for name, figure in all_figures(inspection):
            files.append(save(figure, folder / f"{prefix}{name}.png"))
    return files
