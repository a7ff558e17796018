"""The verbs `confirm` and `probe`: train what is missing, judge, print, write."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from circuits.study import STUDIES, check_device, find, judging_seeds
from trained.config import override
from trained.errors import BadInput, Incomplete

from .request import (
    CONFIRMED,
    NOT_CONFIRMED,
    add_request_options,
    check_json,
    parse_seeds,
    request_from,
)

if TYPE_CHECKING:
    from circuits.confirm import Confirmation
    from trained.store import Run


def add_confirm_options(parser: argparse.ArgumentParser) -> None:
    """The options of `confirm`."""
    parser.add_argument(
        "studies",
        nargs="*",
        metavar="STUDY",
        help="default: all of ours; yours: package.module:STUDY",
    )
    add_request_options(parser)
    _add_judging_options(parser)
    parser.add_argument(
        "--figures", action="store_true", help="also render every figure of the study"
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="judge on a pretrained model instead"
    )
    parser.add_argument(
        "--backend", default="hf", metavar="hf|nnsight", help="of that model"
    )


def add_probe_options(parser: argparse.ArgumentParser) -> None:
    """The options of `probe`."""
    parser.add_argument("run", metavar="RUN_OR_ZOO")
    parser.add_argument(
        "--partial",
        action="store_true",
        help="judge an unfinished run too: what lacks its arms is not tested",
    )
    _add_judging_options(parser)


def _add_judging_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", default="*", metavar="CLAIMS", help="ids like 'lego.length.*'"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts")


def run_confirm(options: argparse.Namespace) -> int:
    """Judge every study that was asked for, on its own models or on a given one."""
    studies = options.studies or STUDIES
    check_json(options.json)
    judge_all = _on_runs if options.model is None else _on_language_model
    return judge_all(studies, options)


def run_probe(options: argparse.Namespace) -> int:
    """Judge a run that is already trained."""
    from circuits.confirm import confirm_run
    from trained.store import open_run

    check_json(options.json)
    run = open_run(options.run)
    done = confirm_run(run, only=options.only, partial=options.partial)
    _show(done)
    _write_json(options.json, [done])
    return _code([done])


def _on_runs(studies: Sequence[str], options: argparse.Namespace) -> int:
    requests = [request_from(study, options) for study in studies]
    from circuits.confirm import confirm_run
    from circuits.training import prepare

    done: list[Confirmation] = []
    unfinished: list[Incomplete] = []
    for run in [prepare(request) for request in requests]:
        started = time.perf_counter()
        try:
            train_with_progress(run, options.jobs)
        except Incomplete as error:
            # The other studies do not depend on it.
            unfinished.append(error)
            continue
        done.append(confirm_run(run, only=options.only, started=started))
        _show(done[-1])
        _write_json(options.json, done)
        if options.figures:
            _render_all(run)
    if unfinished:
        raise Incomplete("; ".join(map(str, unfinished))) from unfinished[0]
    return _code(done)


def _on_language_model(names: Sequence[str], options: argparse.Namespace) -> int:
    """Each study's claims about language models, on one of them."""
    check_device(options.device)
    if options.figures:
        raise BadInput("--figures goes with trained runs; see reasonscope inspect")
    studies = [find(name) for name in names]
    presets = [study.language_preset(options.preset) for study in studies]
    settings = [override(preset.config, options.assignments) for preset in presets]
    seeds = parse_seeds(options.seeds) if options.seeds else None
    from circuits.confirm import confirm_language
    from circuits.models.open import open as open_model

    model = open_model(options.model, backend=options.backend, device=options.device)
    done = []
    for study, preset, sizes in zip(studies, presets, settings, strict=True):
        lab = study.language_lab(model, sizes, seeds or judging_seeds(preset.n_seeds))
        found = confirm_language(study, lab, preset=options.preset, only=options.only)
        done.append(found)
        _show(found)
        _write_json(options.json, done)
    return _code(done)


def train_with_progress(run: "Run", jobs: int | None, only: str = "*") -> None:
    """Train what is missing of a run, and say how far it is."""
    from rich.console import Console

    from circuits.training import arms_left, train_run

    from .progress import TrainingProgress

    left = len(arms_left(run, only))
    with TrainingProgress(Console(stderr=True), find(run.study).slug, left) as observer:
        train_run(run, observer=observer, jobs=jobs, only=only)


def _code(done: Sequence["Confirmation"]) -> int:
    return CONFIRMED if all(c.passed for c in done) else NOT_CONFIRMED


def _show(done: "Confirmation") -> None:
    from circuits.report.tables import console, print_verdicts

    where = str(done.run.path) if done.run else done.model
    title = (
        f"{done.study}, preset {done.preset}, {len(done.seeds)} seeds, "
        f"{done.seconds:.0f} s, {where}"
    )
    print_verdicts(console(), title, done.verdicts, done.stored)


def _render_all(run: "Run") -> None:
    from circuits.confirm import open_lab
    from probes.figures import save

    lab = open_lab(run)
    for kind, draw in lab.study.figures.items():
        file = run.path / "figures" / f"{kind}.png"
        try:
            print(save(draw(lab), file))
        except BadInput as error:
            print(f"no figure {kind}: {error}")


def _write_json(path: Path | None, done: "Sequence[Confirmation]") -> None:
    if path is None:
        return
    from trained.store import write_json

    objects = [confirmation.as_dict() for confirmation in done]
    write_json(path, objects[0] if len(objects) == 1 else objects)
