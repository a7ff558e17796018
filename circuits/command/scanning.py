"""The verb `scan`: the signals over a dataset, a summary and figures."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuits.datasets.dataset import read_dataset
from circuits.models.choices import BACKENDS, DTYPES, full_dtype
from circuits.scan.request import (
    SIGNALS,
    Settings,
    default_signals,
    require,
)
from trained.device import DEVICES
from trained.errors import BadInput
from trained.text import printable

from .output import JsonOutput, add_json_option
from .request import CONFIRMED, add_executor_options, cluster_from

if TYPE_CHECKING:
    from rich.console import Console

    from circuits.scan.scan import Scan
    from trained.workers import Executor

SHOWN = 5
"""Heads and components that are printed; summary.json has all."""

SHOWN_LAYERS = 10


def add_scan_options(parser: argparse.ArgumentParser) -> None:
    """The options of `scan`."""
    parser.add_argument("model", metavar="MODEL", help="smollm2, a path or a hub name")
    parser.add_argument("data", type=Path, metavar="DATA", help="JSONL, CSV or Parquet")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="where tables, summary and figures go; repeat the command to go on",
    )
    parser.add_argument(
        "--signals",
        metavar="A,B,..",
        help=f"of {', '.join(SIGNALS)} and resid_post:LAYER; default: the first three",
    )
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the file's column OLD is our field NEW; repeatable",
    )
    parser.add_argument("--dtype", default="float32", metavar="|".join(DTYPES))
    parser.add_argument(
        "--device", default="auto", help=f"{', '.join(DEVICES)}, cuda:N or spread"
    )
    parser.add_argument("--backend", default="hf", metavar="|".join(BACKENDS))
    parser.add_argument("--batch-tokens", type=int, default=1024, metavar="N")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="of each worker"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the nulls")
    parser.add_argument(
        "--workers", type=int, dest="jobs", metavar="N", help="the same as --jobs"
    )
    add_executor_options(parser)
    add_json_option(parser, "the summary")


def run_scan(options: argparse.Namespace) -> int:
    """Measure what is not there yet, then sum up."""
    output = JsonOutput(options.json)
    options.dtype = full_dtype(options.dtype)
    data = read_dataset(options.data, options.columns)
    signals = _signals(options.signals) or default_signals(data)
    require(signals, data)
    further = {
        name: getattr(options, name)
        for name in ("dtype", "device", "backend", "batch_tokens", "threads", "seed")
    }
    # Refuses a bad setting before torch is loaded.
    Settings(signals, **further)
    workers = _workers(options)
    from circuits.report.terminal import console, say
    from circuits.scan.scan import scan

    page = console(stderr=output.takes_stdout)
    for note in notes(data.rows):
        say(page, note)
    done = scan(
        options.model, data, options.output, signals, workers=workers, **further
    )
    output.finish(dict(done.summary))
    print_summary(page, done.summary)
    for file in _draw(done):
        say(page, str(file))
    return CONFIRMED


def _signals(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    return tuple(name.strip() for name in text.split(",") if name.strip()) or ("",)


def _workers(options: argparse.Namespace) -> "int | Executor | None":
    """How many, or a cluster; None for as many as fit."""
    cluster = cluster_from(options)
    if cluster is None and options.jobs is not None and options.jobs < 1:
        raise BadInput(f"--workers {options.jobs}: give at least 1")
    return options.jobs if cluster is None else cluster


def notes(rows: Sequence[Any]) -> list[str]:
    """What a user may not have meant."""
    known = [(row.prompt, answer) for row in rows for answer in row.answers]
    glued = [not (p[-1].isspace() or a[0].isspace()) for p, a in known]
    if known and all(glued):
        return [
            "note: no prompt ends and no answer begins with a space; most vocabularies "
            "hold words with the space before them"
        ]
    return []


def print_summary(page: "Console", summary: Mapping[str, Any]) -> None:
    """A table for every signal: what is largest, beside its null."""
    from circuits.report.terminal import say

    about = f"{summary['model']} on {summary['data']}"
    say(page, f"{_cell(about)}: {summary['prompts']} prompts")
    tables: dict[str, Callable[[list[Any]], Rows]] = {
        "lens": _lens_rows,
        "attention": _attention_rows,
        "alignment": _alignment_rows,
        "patching": _patching_rows,
        "attribution": _attribution_rows,
    }
    for signal, records in summary["signals"].items():
        every = [record for record in records if record["group"] == "all"]
        _print_table(page, signal, tables.get(signal, _state_rows)(every))


Rows = list[tuple[Any, ...]]
"""The headings, then the rows."""


def _print_table(page: "Console", title: str, rows: Rows) -> None:
    from rich.table import Table
    from rich.text import Text

    headings, *others = rows
    table = Table(title=Text(title), title_justify="left")
    for heading in headings:
        table.add_column(Text(str(heading)), justify="right")
    for row in others:
        table.add_row(*(Text(_cell(value)) for value in row))
    page.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    # Names come from the data: none of them may move the cursor.
    return printable(text)


def _layer(record: Mapping[str, Any]) -> str:
    return "embedding" if record["layer"] < 0 else str(record["layer"])


def _lens_rows(records: list[Any]) -> Rows:
    records.sort(key=lambda record: record["layer"])
    last, steps = len(records) - 1, SHOWN_LAYERS - 1
    places = sorted({round(step * last / steps) for step in range(SHOWN_LAYERS)})
    rows: Rows = [("layer", "log p", "first token", "another's", "on top", "rank")]
    for record in (records[place] for place in places):
        values = (record[v] for v in ("log_prob", "first_log_prob", "null_log_prob"))
        rank = math.exp(record["log_rank"]) if record["log_rank"] is not None else None
        rows.append((_layer(record), *values, record["said"], rank))
    return rows


def _attention_rows(records: list[Any]) -> Rows:
    """The heads that look hardest, above the null, from the last token."""
    rows: Rows = [("query", "key", "head", "mass", "shuffled")]
    pairs = dict.fromkeys((r["query"], r["key"]) for r in records)
    for pair in pairs:
        own = [r for r in records if (r["query"], r["key"]) == pair]
        own.sort(key=lambda record: (record["null_mass"] or 0.0) - record["mass"])
        for record in own[: SHOWN if pair[0] == "last" else 1]:
            head = f"{record['layer']}.{record['head']}"
            rows.append((*pair, head, record["mass"], record["null_mass"]))
    return rows


def _alignment_rows(records: list[Any]) -> Rows:
    """For every pair the layer at which it stands out most."""
    rows: Rows = [
        ("source", "target", "layer", "centred", "other prompts", "plain", "others")
    ]
    for pair in dict.fromkeys((r["source"], r["target"]) for r in records):
        own = [r for r in records if (r["source"], r["target"]) == pair]
        # A mean and a null take other prompts with both roles.
        known = [r for r in own if _known(r["centred"]) and _known(r["null_centred"])]
        if not known:
            rows.append((*pair, "too few prompts", *[None] * 4))
            continue
        best = max(known, key=lambda r: float(r["centred"] - r["null_centred"]))
        values = ("centred", "null_centred", "cosine", "null_cosine")
        rows.append((*pair, _layer(best), *(best[value] for value in values)))
    return rows


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _patching_rows(records: list[Any]) -> Rows:
    """For every place the layers at which it restores most and least."""
    rows: Rows = [("place", "layer", "restored", "elsewhere")]
    for place in dict.fromkeys(record["place"] for record in records):
        own = [r for r in records if r["place"] == place and r["recovery"] is not None]
        for chosen in (max, min) if own else ():
            best = chosen(own, key=lambda record: float(record["recovery"]))
            rows.append((place, _layer(best), best["recovery"], best["null_recovery"]))
    return rows


def _attribution_rows(records: list[Any]) -> Rows:
    rows: Rows = [("component", "logits", "standard error", "corrupt prompt")]
    records.sort(key=lambda record: -abs(record["value"]))
    values = ("component", "value", "value_se", "null_value")
    return rows + [tuple(r[value] for value in values) for r in records[: 2 * SHOWN]]


def _state_rows(records: list[Any]) -> Rows:
    rows: Rows = [("place", "prompts", "mean norm")]
    return rows + [(r["place"], r["n"], r["norm"]) for r in records]


def _draw(done: "Scan") -> list[Path]:
    from probes.figures import save

    figures = done.figures()
    return [save(figure, done.path / f"{name}.png") for name, figure in figures.items()]
