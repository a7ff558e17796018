"""The verb `inspect`: open the model, look, print, write."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from circuits.inspection.request import (
    BACKENDS,
    DEFAULT_SIGNALS,
    SIGNALS,
    InspectRequest,
)
from circuits.study import DEVICES

from .output import JsonOutput, add_json_option
from .request import CONFIRMED

if TYPE_CHECKING:
    from rich.console import Console

    from circuits.inspection.inspect import Inspection
    from probes.measurement import Measurement

SHOWN_LAYERS = 10
"""Rows of the printed table; the JSON has every layer."""


def add_inspect_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inspect`."""
    parser.add_argument("model", metavar="MODEL", help="smollm2, a path or a hub name")
    parser.add_argument("prompts", nargs="+", metavar="PROMPT")
    parser.add_argument("--answer", metavar="TOKEN", help='one token, such as " Paris"')
    parser.add_argument(
        "--signal",
        action="append",
        dest="signals",
        metavar="|".join(SIGNALS),
        help=f"repeatable; default: {' and '.join(DEFAULT_SIGNALS)}",
    )
    parser.add_argument(
        "--corrupt", metavar="PROMPT", help="the other prompt of --signal patching"
    )
    parser.add_argument("--backend", default="hf", metavar="|".join(BACKENDS))
    parser.add_argument(
        "--device", default="auto", help=f"{', '.join(DEVICES)}, cuda:N or spread"
    )
    add_json_option(parser, "what was found")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="write inspect.json and figures there",
    )


def run_inspect(options: argparse.Namespace) -> int:
    """Inspect every prompt, print what was found and write it."""
    request = InspectRequest(
        model=options.model,
        prompts=tuple(options.prompts),
        answer=options.answer,
        corrupt=options.corrupt,
        signals=tuple(dict.fromkeys(options.signals or DEFAULT_SIGNALS)),
        backend=options.backend,
        device=options.device,
        out=options.output,
    )
    output = JsonOutput(options.json)
    _show(_inspections(request), request.out, output)
    return CONFIRMED


def _inspections(request: InspectRequest) -> "list[Inspection]":
    from circuits.inspection.inspect import inspect
    from circuits.models import open as pretrained

    model = pretrained.open(
        request.model, backend=request.backend, device=request.device
    )
    return [
        inspect(
            model,
            prompt,
            answer=request.answer,
            corrupt=request.corrupt,
            signals=request.signals,
        )
        for prompt in request.prompts
    ]


def _show(found: "list[Inspection]", out: Path | None, output: JsonOutput) -> None:
    from circuits.report.terminal import console, say
    from trained.store import write_json

    objects = [inspection.as_dict() for inspection in found]
    whole = objects[0] if len(objects) == 1 else objects
    output.finish(whole)
    page = console(stderr=output.takes_stdout)
    for inspection in found:
        print_inspection(page, inspection)
    if out is not None:
        write_json(out / "inspect.json", whole)
        for file in _draw(found, out):
            say(page, str(file))


def print_inspection(page: "Console", inspection: "Inspection") -> None:
    """The answer's fate by layer, and the model's own next tokens."""
    from rich.table import Table
    from rich.text import Text

    from circuits.report.terminal import say

    lens, answer = inspection.lens, inspection.answer
    title = Text(f"{inspection.model.name}: {inspection.text!r}")
    table = Table(title=title, title_justify="left")
    for heading in ("layer", f"rank of {answer}", "log p (nats)", "top token there"):
        table.add_column(Text(heading), justify="right")
    layers = lens.rank.labels["layer"]
    for place in _spread(len(layers)):
        table.add_row(
            str(layers[place]),
            f"{float(lens.rank.values[place, 0]):g}",
            f"{float(lens.log_prob.values[place, 0]):.2f}",
            Text(lens.tokens[place][-1]),
        )
    page.print(table)
    top = ", ".join(f"{token} {value:.3f}" for token, value in inspection.top)
    say(page, f"next token: {top}")
    say(page, f"answer followed: {answer} ({inspection.answer_source})")
    if inspection.attention is not None:
        heads = ", ".join(map(str, inspection.attention.patterns.labels["head"]))
        say(page, f"heads whose last token looks hardest (layer.head): {heads}")
    for grid in (inspection.alignment, inspection.patching):
        if grid is not None:
            say(page, f"{grid.name}: {_largest(grid)}")


def _largest(grid: "Measurement") -> str:
    """The largest value of a grid and its place."""
    layer, position = divmod(int(grid.values.argmax()), grid.values.shape[1])
    where = grid.labels["layer"][layer], grid.labels["position"][position]
    return f"largest {float(grid.values.max()):.2f} at layer {where[0]}, {where[1]}"


def _spread(n: int) -> list[int]:
    """At most `SHOWN_LAYERS` places from the first to the last."""
    if n <= SHOWN_LAYERS:
        return list(range(n))
    return [round(i * (n - 1) / (SHOWN_LAYERS - 1)) for i in range(SHOWN_LAYERS)]


def _draw(found: "list[Inspection]", folder: Path) -> list[Path]:
    from probes.figures import save

    files = []
    for number, inspection in enumerate(found):
        prefix = f"{number}-" if len(found) > 1 else ""
        for name, figure in inspection.figures().items():
            files.append(save(figure, folder / f"{prefix}{name}.png"))
    return files
