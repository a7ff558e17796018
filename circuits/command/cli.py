"""The `reasonscope` command. Heavy libraries load only in the verbs that need them."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from circuits.inspection.request import add_inspect_options, inspect_request
from circuits.study import STUDIES, find
from trained.errors import BadInput, unknown

from .request import (
    CONFIRMED,
    NOT_CONFIRMED,
    Parser,
    add_request_options,
    check_json,
    guarded,
    request_from,
)

if TYPE_CHECKING:
    from circuits.confirm import Confirmation
    from trained.store import Run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""

    def work() -> int:
        options = _parser().parse_args(arguments)
        verb: Callable[[argparse.Namespace], int] = options.verb
        return verb(options)

    return guarded(work)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("reasonscope", description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")

    verb = verbs.add_parser("list", help="studies, claims, presets, expected cost")
    verb.add_argument("--json", action="store_true", help="print JSON")
    verb.set_defaults(verb=_list)

    verb = verbs.add_parser("confirm", help="train-then-probe, print the claims table")
    verb.add_argument(
        "studies", nargs="*", metavar="STUDY", help="default: all of them"
    )
    add_request_options(verb)
    verb.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts")
    verb.add_argument(
        "--figures", action="store_true", help="also render every figure of the study"
    )
    verb.set_defaults(verb=_confirm)

    verb = verbs.add_parser("train", help="train a study's models and store the run")
    verb.add_argument("study", metavar="STUDY")
    add_request_options(verb)
    verb.set_defaults(verb=_train)

    verb = verbs.add_parser("probe", help="judge the claims on a trained run")
    verb.add_argument("run", type=Path, metavar="RUN")
    verb.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts")
    verb.set_defaults(verb=_probe)

    verb = verbs.add_parser("figure", help="render a figure from a run or the zoo")
    verb.add_argument("kind", metavar="KIND")
    verb.add_argument("run", metavar="RUN_OR_ZOO")
    verb.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    verb.set_defaults(verb=_figure)

    verb = verbs.add_parser("inspect", help="the same signals on a pretrained LLM")
    add_inspect_options(verb)
    verb.set_defaults(verb=_inspect)
    return parser


def _list(options: argparse.Namespace) -> int:
    entries = [_entry(slug) for slug in STUDIES]
    if options.json:
        print(json.dumps(entries, indent=1))
        return CONFIRMED
    for entry in entries:
        print(f"{entry['study']}: {entry['title']}")
        for name, preset in entry["presets"].items():
            print(f"  --preset {name}: {preset['seeds']} seeds, {preset['cost']}")
        for claim in entry["claims"]:
            mark = " " if claim["gated"] else "?"
            print(
                f"  {mark} {claim['claim']} ({claim['source']}): {claim['statement']}"
            )
    print("? exploratory: measured and shown, does not decide the exit code")
    return CONFIRMED


def _entry(slug: str) -> dict[str, Any]:
    study = find(slug)
    largest = study.presets["paper"].config
    return {
        "study": slug,
        "title": study.title,
        "presets": {
            name: {"seeds": preset.n_seeds, "cost": preset.cost}
            for name, preset in study.presets.items()
        },
        "claims": [
            {
                "claim": claim.id,
                "statement": claim.statement,
                "source": claim.source,
                "kind": claim.kind,
                "expected": claim.expected,
                "gated": claim.gated,
            }
            for claim in study.claims(largest)
        ],
    }


def _confirm(options: argparse.Namespace) -> int:
    requests = [request_from(slug, options) for slug in options.studies or STUDIES]
    check_json(options.json)
    from circuits.confirm import confirm_run, prepare

    confirmations = []
    for run in [prepare(request) for request in requests]:
        started = time.perf_counter()
        _train_with_progress(run, options.jobs)
        confirmation = confirm_run(run, started=started)
        _show(confirmation)
        confirmations.append(confirmation)
        _write_json(options.json, confirmations)
        if options.figures:
            _render_all(run)
    return CONFIRMED if all(c.passed for c in confirmations) else NOT_CONFIRMED


def _train(options: argparse.Namespace) -> int:
    request = request_from(options.study, options)
    from circuits.confirm import prepare

    run = prepare(request)
    _train_with_progress(run, options.jobs)
    print(run.path)
    return CONFIRMED


def _probe(options: argparse.Namespace) -> int:
    from circuits.confirm import confirm_run
    from trained.store import Run

    check_json(options.json)
    confirmation = confirm_run(Run.open(options.run))
    _show(confirmation)
    _write_json(options.json, [confirmation])
    return CONFIRMED if confirmation.passed else NOT_CONFIRMED


def _figure(options: argparse.Namespace) -> int:
    from probes.figures import FORMATS, save
    from trained.store import open_run

    if options.output.suffix.removeprefix(".") not in FORMATS:
        raise unknown("figure format", options.output.suffix, FORMATS)
    run = open_run(options.run)
    figures = find(run.study).figures
    if options.kind not in figures:
        raise unknown(f"figure of {run.study}", options.kind, figures)
    save(figures[options.kind](run), options.output)
    print(options.output)
    return CONFIRMED


def _inspect(options: argparse.Namespace) -> int:
    request = inspect_request(options)
    from .inspect import run_inspect

    run_inspect(request, as_json=options.json)
    return CONFIRMED


def _train_with_progress(run: "Run", jobs: int | None) -> None:
    from rich.console import Console

    from circuits.confirm import study_of, train_run

    from .progress import TrainingProgress

    study, config = study_of(run)
    left = sum(not run.is_done(arm.name) for arm in study.arms(config))
    with TrainingProgress(Console(stderr=True), run.study, left) as observer:
        train_run(run, observer=observer, jobs=jobs)


def _show(confirmation: "Confirmation") -> None:
    from circuits.tables import console, print_verdicts

    manifest = confirmation.run.manifest
    seeds = len(manifest["seeds"])
    title = (
        f"{manifest['study']}, preset {manifest['preset']}, {seeds} seeds, "
        f"{confirmation.seconds:.0f} s, {confirmation.run.path}"
    )
    print_verdicts(console(), title, confirmation.verdicts)


def _render_all(run: "Run") -> None:
    from probes.figures import save

    for kind, draw in find(run.study).figures.items():
        file = run.path / "figures" / f"{kind}.png"
        try:
            print(save(draw(run), file))
        except BadInput as error:
            print(f"no figure {kind}: {error}")


def _write_json(path: Path | None, confirmations: "Sequence[Confirmation]") -> None:
    if path is None:
        return
    from trained.store import write_json

    objects = [confirmation.as_dict() for confirmation in confirmations]
    write_json(path, objects[0] if len(objects) == 1 else objects)


def entry_point() -> NoReturn:
    """What the installed command calls."""
    sys.exit(main())


if __name__ == "__main__":
    entry_point()
