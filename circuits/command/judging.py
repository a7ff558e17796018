"""The verbs `confirm` and `probe`: train what is missing, judge, print, write."""

import argparse
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circuits import progress
from circuits.claims import chosen
from circuits.models.choices import check_place, full_dtype
from circuits.study import STUDIES, find, judging_seeds
from trained.config import override
from trained.errors import BadInput, Incomplete

from .drawing import draw_all
from .output import JsonOutput, add_json_option
from .reporting import check_page
from .request import (
    CONFIRMED,
    NOT_CONFIRMED,
    add_request_options,
    parse_seeds,
    request_from,
)

if TYPE_CHECKING:
    from rich.console import Console

    from circuits.confirm import Confirmation
    from circuits.datasets.schema import Rows
    from circuits.models.language_model import LanguageModel
    from circuits.report.page import Paper
    from circuits.study import Study
    from trained.courses import Course
    from trained.store import Run
    from trained.workers import Executor


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
        "--report", type=Path, metavar="FILE.html", help="also one page to share"
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="judge on a pretrained model instead"
    )
    add_model_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """The options that go with `--model`."""
    parser.add_argument(
        "--backend", default="hf", metavar="hf|nnsight", help="of that model"
    )
    parser.add_argument(
        "--dtype", default="float32", help="of that model: float32, bf16 or fp16"
    )
    add_data_options(parser)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """The options that give a study other rows than its own."""
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="your rows: JSONL, CSV or Parquet"
    )
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="the file's column OLD is our field NEW; repeatable",
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
    parser.add_argument(
        "--verbose", action="store_true", help="also reasons, nulls, our own claims"
    )
    add_json_option(parser, "the verdicts")


def run_confirm(options: argparse.Namespace) -> int:
    """Judge every study that was asked for, on its own models or on a given one."""
    studies = list(dict.fromkeys(options.studies or STUDIES))
    if options.model is None and (options.data or options.columns):
        raise BadInput("--data and --columns go with --model")
    show = _Show(options)
    if options.report:
        check_page("--report", options.report)
    judge_all = _on_runs if options.model is None else _on_language_model
    return judge_all(studies, options, show)


def run_probe(options: argparse.Namespace) -> int:
    """Judge a run that is already trained."""
    from circuits.confirm import confirm_run
    from trained.store import open_run

    show = _Show(options)
    run = open_run(options.run)
    show.add(
        confirm_run(run, only=options.only, partial=options.partial, told=show.part)
    )
    return show.close()


class _Show:
    """Prints headlines as they are judged; a study is written before its scores."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._json = JsonOutput(options.json)
        self._verbose = options.verbose
        self._at: dict[int, Confirmation] = {}
        self._unwritten: Exception | None = None

    def part(self, part: "Confirmation") -> None:
        """Show headlines of a study whose others may not be judged yet.

        Where they cannot be written, `add` says so, once nothing is lost by it.
        """
        from circuits.report.terminal import print_part

        try:
            with progress.aside():
                print_part(self._page, part, verbose=self._verbose)
        except (OSError, ValueError) as error:
            self._unwritten = error

    def add(self, done: "Confirmation", place: int = 0) -> None:
        """Keep a study whose headlines were shown, and show its scores.

        Args:
            done: what was judged, be it before a study that was asked for earlier.
            place: of the study among those that were asked for.
        """
        from circuits.report.terminal import print_end

        self._at[place] = done
        self._json.keep(self._object)
        if self._unwritten is not None:
            raise self._unwritten
        with progress.aside():
            print_end(self._page, done, verbose=self._verbose)

    def close(self) -> int:
        """Show all studies side by side, and give the exit code."""
        from circuits.report.terminal import print_summary
        from circuits.report.verdicts import judged

        if self._done:
            self._json.finish(self._object)
        if len(self._done) > 1:
            found = [judged(done.as_dict(), done.study) for done in self._done]
            print_summary(self._page, found)
        passed = all(done.passed for done in self._done)
        return CONFIRMED if passed else NOT_CONFIRMED

    def say(self, words: str) -> None:
        """Print words where they leave standard output to the JSON."""
        self._json.say(words)

    @property
    def _done(self) -> "list[Confirmation]":
        return [self._at[place] for place in sorted(self._at)]

    @property
    def _object(self) -> Any:
        objects = [done.as_dict() for done in self._done]
        return objects[0] if len(objects) == 1 else objects

    @property
    def _page(self) -> "Console":
        from circuits.report.terminal import console

        return console(stderr=self._json.takes_stdout)


def _on_runs(studies: Sequence[str], options: argparse.Namespace, show: _Show) -> int:
    requests = [request_from(study, options) for study in studies]
    for request in requests:
        request.claims(options.only)
    from circuits.report.page import write_page
    from circuits.training import executor_for, prepare
    from trained.courses import drive
    from trained.workers import kept

    with kept(executor_for(requests[0])) as executor:
        runs = [prepare(request) for request in requests]
        courses = (
            _course(place, run, executor, options, show)
            for place, run in enumerate(runs)
        )
        found = list(drive(executor, courses))
    code = show.close()
    drawn = [one for one in found if not isinstance(one, Incomplete)]
    if options.report:
        show.say(str(write_page(options.report, list(chain(*drawn)), [])))
    if len(drawn) < len(found):
        raise Incomplete("; ".join(str(e) for e in found if isinstance(e, Incomplete)))
    return code


def _course(
    place: int,
    run: "Run",
    executor: "Executor | None",
    options: argparse.Namespace,
    show: _Show,
) -> "Course[list[Paper] | Incomplete]":
    """Train a run, judge it, show it, and draw what the page shows of it."""
    from circuits.confirm import confirming, open_lab
    from circuits.report.gather import drawing
    from circuits.training import training

    started = time.perf_counter()
    try:
        yield from training(run, executor)
        done = yield from confirming(
            run, executor, only=options.only, started=started, told=show.part
        )
    except Incomplete as error:
        # The other studies do not depend on it.
        return error
    show.add(done, place)
    if options.figures:
        draw_all(open_lab(run), run.path / "figures", told=show.say)
    return (yield from drawing(run.path)) if options.report else []


def _on_language_model(
    names: Sequence[str], options: argparse.Namespace, show: _Show
) -> int:
    """Each study's claims about language models, on one of them."""
    check_place(options.device)
    if options.report and options.only != "*":
        raise BadInput("--report shows all claims of a language model; leave --only")
    dtype = full_dtype(options.dtype)
    studies = [find(name) for name in names]
    presets = [study.language_preset(options.preset) for study in studies]
    settings = _settings(studies, options)
    seeds = parse_seeds(options.seeds) if options.seeds else None
    data = rows_from(studies, options)
    from circuits.confirm import confirm_language
    from circuits.language import keeper_in, open_language

    folders: list[Path] = []
    model = _opened(options, dtype)
    asked = zip(names, studies, presets, settings, strict=True)
    for place, (name, study, preset, sizes) in enumerate(asked):
        keeper = keeper_in(options.out, name, model, sizes, data)
        lab = study.language_lab(
            model,
            sizes,
            seeds or judging_seeds(preset.n_seeds),
            data=data,
            keeper=keeper,
        )
        found = confirm_language(
            study, lab, preset=options.preset, only=options.only, told=show.part
        )
        show.add(found, place)
        assert keeper.path is not None
        folders.append(keeper.path)
        if options.figures:
            folder = keeper.path / "figures"
            draw_all(open_language(keeper.path), folder, told=show.say)
    code = show.close()
    if options.report:
        from circuits.report.gather import papers
        from circuits.report.page import write_page

        page = write_page(options.report, papers([str(f) for f in folders]), [])
        show.say(str(page))
    return code


def _settings(studies: "Sequence[Study]", options: argparse.Namespace) -> list[Any]:
    """What each study is asked with; each has some of the claims that are asked."""
    settings = []
    for study in studies:
        preset = study.language_preset(options.preset)
        settings.append(override(preset.config, options.assignments))
        chosen(study.language_claims(settings[-1]), options.only)
    return settings


def _opened(options: argparse.Namespace, dtype: str) -> "LanguageModel":
    from circuits.models.open import open as open_model

    return open_model(
        options.model, backend=options.backend, device=options.device, dtype=dtype
    )


def rows_from(
    studies: "Sequence[Study]", options: argparse.Namespace
) -> "Rows[Any] | None":
    """The rows that were given, checked; they belong to one study."""
    if options.data is None:
        if options.columns:
            raise BadInput("--columns goes with --data")
        return None
    if len(studies) != 1:
        raise BadInput("--data belongs to one study; name it")
    schema = studies[0].needs_language().schema
    return schema.read(options.data, options.columns)
