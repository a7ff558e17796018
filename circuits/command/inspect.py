"""The verb `inspect`: open the model, look, print, write."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from circuits.inspection.request import (
    DEFAULT_SIGNALS,
    SIGNALS,
    STYLES,
    InspectRequest,
    Opening,
    places_of,
    positions_of,
    rows_of_file,
    rows_of_texts,
)
from circuits.models.choices import BACKENDS, DTYPES, full_dtype
from circuits.progress import each
from trained.device import DEVICES
from trained.errors import BadInput

from .generating import (
    add_generate_options,
    generate_request,
    is_generating,
    run_generate,
)
from .inspected import print_comparison, print_inspection
from .output import JsonOutput, add_json_option
from .request import CONFIRMED

if TYPE_CHECKING:
    from circuits.datasets.row import Row
    from circuits.inspection.comparison import Comparison
    from circuits.inspection.inspect import Inspection
    from circuits.models.language_model import LanguageModel


def add_inspect_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inspect`."""
    parser.add_argument("model", metavar="MODEL", help="smollm2, a path or a hub name")
    parser.add_argument(
        "prompts", nargs="+", metavar="PROMPT", help="a text; with --row, a dataset"
    )
    _add_prompt_options(parser)
    parser.add_argument(
        "--signal",
        action="append",
        dest="signals",
        metavar="|".join(SIGNALS),
        help=f"repeatable; default: {' and '.join(DEFAULT_SIGNALS)}",
    )
    parser.add_argument(
        "--positions",
        metavar="A,B,..",
        help="roles, phrases or columns (3, 5-9) that are shown and patched",
    )
    _add_model_options(parser)
    add_json_option(parser, "what was found")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="write inspect.json and figures there",
    )
    parser.add_argument(
        "--style", default="paper", metavar="|".join(STYLES), help="of the figures"
    )
    add_generate_options(parser)


def _add_prompt_options(parser: argparse.ArgumentParser) -> None:
    """What is known of the prompts."""
    parser.add_argument(
        "--chat",
        action="store_true",
        help="put prompts into the tokenizer's chat template",
    )
    parser.add_argument(
        "--answer",
        action="append",
        metavar="TEXT",
        help='what should follow, such as " Paris"; repeat it for accepted ones',
    )
    parser.add_argument(
        "--role",
        action="append",
        default=[],
        metavar="NAME=PHRASE",
        help="a phrase of the prompt to look at, or [start,end]; repeatable",
    )
    parser.add_argument(
        "--corrupt", metavar="PROMPT", help="the other prompt of --signal patching"
    )
    parser.add_argument(
        "--corrupt-answer", metavar="TEXT", help="what should follow that one"
    )
    parser.add_argument(
        "--row",
        action="append",
        type=int,
        metavar="N",
        help="of the dataset that PROMPT then is (JSONL, CSV, Parquet), from 1",
    )
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the dataset's column OLD is our field NEW; repeatable",
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """How the model is opened, and what it is set beside."""
    parser.add_argument("--backend", default="hf", metavar="|".join(BACKENDS))
    parser.add_argument(
        "--device", default="auto", help=f"{', '.join(DEVICES)}, cuda:N or spread"
    )
    parser.add_argument("--dtype", default="float32", metavar="|".join(DTYPES))
    parser.add_argument(
        "--adapter", type=Path, metavar="DIR", help="a PEFT adapter of MODEL"
    )
    parser.add_argument(
        "--against",
        metavar="MODEL",
        help="another model, or a revision NAME@REVISION, to set beside; changes are "
        "this one minus the first",
    )


def run_inspect(options: argparse.Namespace) -> int:
    """Inspect every prompt, print what was found and write it."""
    if is_generating(options):
        opening = _opening(options, options.model, options.adapter)
        asked = generate_request(options, opening)
        output = JsonOutput(options.json)
        run_generate(asked, opened(opening), output)
        return CONFIRMED
    request = request_of(options)
    output = JsonOutput(options.json)
    _show(_found(request), request, output)
    return CONFIRMED


def request_of(options: argparse.Namespace) -> InspectRequest:
    """What is asked for; `BadInput` before torch is loaded."""
    other = options.against
    return InspectRequest(
        opening=_opening(options, options.model, options.adapter),
        rows=_rows(options),
        signals=tuple(dict.fromkeys(options.signals or DEFAULT_SIGNALS)),
        positions=positions_of(options.positions),
        chat=options.chat,
        against=None if other is None else _opening(options, other),
        out=options.output,
        style=options.style,
    )


def _opening(
    options: argparse.Namespace, model: str, adapter: Path | None = None
) -> Opening:
    return Opening(
        model, options.backend, options.device, full_dtype(options.dtype), adapter
    )


def _rows(options: argparse.Namespace) -> "tuple[Row, ...]":
    given = {
        "answer": options.answer,
        "corrupt": options.corrupt,
        "corrupt_answer": options.corrupt_answer,
        "roles": places_of(tuple(options.role)),
    }
    fields = {name: value for name, value in given.items() if value}
    if options.row is None:
        if options.columns:
            raise BadInput("--columns renames fields of a dataset: name its --row")
        return rows_of_texts(tuple(options.prompts), fields)
    if fields or len(options.prompts) > 1:
        what = f"--{next(iter(fields)).replace('_', '-')}" if fields else "a PROMPT"
        raise BadInput(f"--row takes all from one dataset: leave out {what}")
    file = Path(options.prompts[0])
    return rows_of_file(file, tuple(options.row), tuple(options.columns))


def _found(request: InspectRequest) -> "Sequence[Inspection | Comparison]":
    """The readings; the first model is let go before the other one is opened."""
    found = _inspections(request, request.opening, request.rows)
    if request.against is None:
        return found
    from circuits.inspection.comparison import Comparison, followed

    pairs = zip(request.rows, found, strict=True)
    rows = tuple(followed(row, one) for row, one in pairs)
    others = _inspections(request, request.against, rows)
    return [Comparison(*pair) for pair in zip(found, others, strict=True)]


def _inspections(
    request: InspectRequest, opening: Opening, rows: "Sequence[Row]"
) -> "list[Inspection]":
    from circuits.inspection.inspect import inspect
    from circuits.models.chat import row_as_chat

    model = opened(opening)
    asked = [row_as_chat(model, row) for row in rows] if request.chat else rows
    return [
        inspect(model, row, signals=request.signals, positions=request.positions)
        for row in each("inspect: prompt", asked)
    ]


def opened(opening: Opening) -> "LanguageModel":
    """The model, as it was asked for."""
    from circuits.models import open as pretrained

    return pretrained.open(
        opening.model,
        backend=opening.backend,
        device=opening.device,
        dtype=opening.dtype,
        adapter=opening.adapter,
    )


def _show(
    found: "Sequence[Inspection | Comparison]",
    request: InspectRequest,
    output: JsonOutput,
) -> None:
    from circuits.inspection.comparison import Comparison
    from circuits.report.terminal import console, say
    from trained.store import write_json

    objects = [one.as_dict() for one in found]
    whole = objects[0] if len(objects) == 1 else objects
    output.finish(whole)
    page = console(stderr=output.takes_stdout)
    for one in found:
        if isinstance(one, Comparison):
            print_comparison(page, one)
        else:
            print_inspection(page, one)
    if request.out is not None:
        write_json(request.out / "inspect.json", whole)
        for file in _draw(found, request.out, request.style):
            say(page, str(file))


def _draw(
    found: "Sequence[Inspection | Comparison]", folder: Path, style: str
) -> Iterator[Path]:
    from probes.figures import save, styled

    for number, one in enumerate(found):
        prefix = f"{number}-" if len(found) > 1 else ""
        with styled(style):
            for name, figure in one.figures().items():
                yield save(figure, folder / f"{prefix}{name}.png", foot=one.origin)
