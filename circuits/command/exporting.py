"""The verb `export`: a study's rows as a file, of its own or for `scan`."""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from circuits.models.choices import full_dtype
from circuits.study import find, judging_seeds
from trained.errors import BadInput, unknown

from .judging import add_model_options, rows_from
from .output import JsonOutput, add_json_option, check_output
from .request import CONFIRMED

FORMS = ("scan", "study")


def add_export_options(parser: argparse.ArgumentParser) -> None:
    """The options of `export`."""
    parser.add_argument("study", metavar="STUDY")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE.jsonl"
    )
    parser.add_argument(
        "--form",
        default="scan",
        metavar="|".join(FORMS),
        help="prompts for scan (default), or rows as confirm --data reads them",
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="whose words the rows are drawn from"
    )
    parser.add_argument("--preset", default="quick", help="of what is drawn")
    parser.add_argument("--device", default="auto")
    add_json_option(parser, "what the file holds")
    add_model_options(parser)


def run_export(options: argparse.Namespace) -> int:
    """Write the rows and say how many."""
    if options.form not in FORMS:
        raise unknown("form", options.form, FORMS)
    study = find(options.study)
    schema = study.needs_language().schema
    check_output("-o", options.output)
    output = JsonOutput(options.json)
    given = rows_from([study], options) or schema.own()
    rows = _drawn(options) if given is None else given.rows
    written: Iterable[Any] = map(asdict, rows)
    if options.form == "scan":
        written = schema.prompts(rows)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in written]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("".join(lines), "utf-8")
    held = {"file": str(options.output), "study": study.slug, "form": options.form}
    output.finish({**held, "rows": len(lines)})
    output.say(f"{options.output}: {len(lines)} rows")
    return CONFIRMED


def _drawn(options: argparse.Namespace) -> Sequence[Any]:
    """Rows that are made for a model."""
    if options.model is None:
        raise BadInput(
            f"the rows of {options.study} are drawn for a model; give --model MODEL, "
            "or --data FILE"
        )
    from circuits.models.open import open as open_model

    study = find(options.study)
    model = open_model(
        options.model, device=options.device, dtype=full_dtype(options.dtype)
    )
    preset = study.language_preset(options.preset)
    lab = study.language_lab(model, preset.config, judging_seeds(1))
    return tuple(lab.own_rows())
