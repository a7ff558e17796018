"""The verb `doctor`: can the numbers taken from a model be trusted?"""

import argparse
from typing import TYPE_CHECKING

from circuits.models.choices import BACKENDS, DTYPES, full_dtype
from circuits.progress import say as tell

from .output import JsonOutput, add_json_option
from .request import BAD_INPUT, CONFIRMED, NOT_CONFIRMED

if TYPE_CHECKING:
    from rich.table import Table

    from circuits.inspection.doctor import Checkup

CODES = {"right": CONFIRMED, "wrong": NOT_CONFIRMED, "refused": BAD_INPUT}
STYLES = {"right": "green", "wrong": "red", "refused": "yellow", "absent": "dim"}
SIGNS = {"right": "✓", "wrong": "✗", "refused": "?", "absent": "·"}


def add_doctor_options(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`."""
    parser.add_argument("model", metavar="MODEL", help="smollm2, a path or a hub name")
    parser.add_argument("--backend", default="hf", metavar="|".join(BACKENDS))
    parser.add_argument("--dtype", default="float32", metavar="|".join(DTYPES))
    parser.add_argument("--device", default="auto", help="as for inspect")
    parser.add_argument(
        "--all", action="store_true", help="behind every backend, in every type"
    )
    add_json_option(parser, "what was found")


def run_doctor(options: argparse.Namespace) -> int:
    """Try every law on a model, print what was found and write it."""
    output = JsonOutput(options.json)
    from circuits.inspection.doctor import doctor
    from circuits.report.terminal import console, say

    found = doctor(
        options.model,
        backend=options.backend,
        dtype=full_dtype(options.dtype),
        device=options.device,
        everything=options.all,
        told=lambda line: tell(line) if options.all else None,
    )
    output.finish(found.as_dict())
    page = console(stderr=output.takes_stdout)
    page.print(_table(found))
    for setting, several in found.found.items():
        for finding in several:
            if finding.detail:
                say(
                    page, f"{setting}, {finding.law}: {finding.state}: {finding.detail}"
                )
    say(page, f"{found.model}: {found.state} ({found.seconds:.1f} s)", style="bold")
    return CODES[found.state]


def _table(found: "Checkup") -> "Table":
    """Law by law: in full for one setting, a sign for each of several."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from circuits.inspection.doctor import LAWS

    columns = {key: {f.law: f for f in several} for key, several in found.found.items()}
    table = Table(title=Text(found.model), title_justify="left", box=box.SIMPLE)
    table.add_column("law", no_wrap=True)
    if len(columns) > 1:
        for setting in columns:
            short = setting.replace(" ", "\n").replace("float", "f")
            table.add_column(short, justify="center")
        for law in LAWS:
            states = [c[law].state if law in c else "absent" for c in columns.values()]
            table.add_row(law, *(Text(SIGNS[s], STYLES[s]) for s in states))
        table.caption = ", ".join(f"{SIGNS[state]} {state}" for state in SIGNS)
        return table
    ((setting, laws),) = columns.items()
    for heading in ("what it says", setting, "error", "allowed"):
        table.add_column(heading)
    for law in (law for law in LAWS if law in laws):
        one = laws[law]
        sizes = ("" if x is None else f"{x:.1g}" for x in (one.error, one.limit))
        table.add_row(law, LAWS[law], Text(one.state, STYLES[one.state]), *sizes)
    return table
