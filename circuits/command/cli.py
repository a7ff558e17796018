"""The `reasonscope` command. Heavy libraries load only in the verbs that need them."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from trained.memory import keep_freed_memory

from .calibrating import add_calibrate_options, run_calibrate
from .claim import add_claim_options, run_claim
from .completing import add_completion_options, print_completion
from .drawing import add_figure_options, run_figure
from .examining import add_doctor_options, run_doctor
from .exporting import add_export_options, run_export
from .inspect import add_inspect_options, run_inspect
from .judging import add_confirm_options, add_probe_options, run_confirm, run_probe
from .listing import add_list_options, run_list
from .memory import limit_memory
from .reporting import add_report_options, run_report
from .request import CONFIRMED, Parser, guarded
from .scanning import add_scan_options, run_scan
from .sweeping import add_sweep_options, run_sweep
from .training import add_train_options, run_train
from .verifying import (
    add_diff_options,
    add_verify_options,
    run_diff,
    run_verify,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)

    def work() -> int:
        options = _parser().parse_args([word for word in given if word != "--debug"])
        verb: Callable[[argparse.Namespace], int] = options.verb
        return verb(options)

    return guarded(work, debug="--debug" in given)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("reasonscope", description=GREETING.splitlines()[0])
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="print the version and leave"
    )
    parser.add_argument(
        "--debug", action="store_true", help="show the traceback of a failure"
    )
    parser.set_defaults(verb=_greet)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")

    def add(
        name: str,
        text: str,
        verb: Callable[[argparse.Namespace], int],
        options: Callable[[argparse.ArgumentParser], None],
    ) -> None:
        added = verbs.add_parser(name, help=text)
        options(added)
        added.set_defaults(verb=verb)

    add("list", "studies, claim tree, presets, config keys", run_list, add_list_options)
    add("confirm", "train-then-probe, judge", run_confirm, add_confirm_options)
    add(
        "train",
        "train a study's models and store the run",
        run_train,
        add_train_options,
    )
    add("probe", "judge the claims on a trained run", run_probe, add_probe_options)
    add("claim", "all that is known of one claim", run_claim, add_claim_options)
    add("figure", "render figures of a run", run_figure, add_figure_options)
    add("inspect", "the signals on a pretrained LLM", run_inspect, add_inspect_options)
    add("doctor", "can a model's numbers be trusted?", run_doctor, add_doctor_options)
    add("scan", "the signals over a dataset", run_scan, add_scan_options)
    add(
        "calibrate",
        "every claim on every null: could it have failed?",
        run_calibrate,
        add_calibrate_options,
    )
    add(
        "report",
        "one page to share: verdicts and views",
        run_report,
        add_report_options,
    )
    add("sweep", "claims over a grid of configs", run_sweep, add_sweep_options)
    add("export", "a study's rows as a file", run_export, add_export_options)
    add("verify", "is a run whole, and what made it?", run_verify, add_verify_options)
    add("diff", "two verdict files, claim by claim", run_diff, add_diff_options)
    add("completion", "print the shell's completion", _complete, add_completion_options)
    return parser


def _complete(options: argparse.Namespace) -> int:
    return print_completion(_parser(), options.shell)


GREETING = """\
reasonscope: how transformers reason, paper by paper.

Three things to try:

  reasonscope list
      the papers and what they assert
  reasonscope confirm recall
      train, probe and judge one (two minutes)
  reasonscope figure attention recall -o a.png
      a figure from a shipped run

reasonscope --help shows every verb."""


def _greet(_options: argparse.Namespace) -> int:
    print(GREETING)
    return CONFIRMED


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> NoReturn:
        from importlib.metadata import version

        print(f"reasonscope {version('reasonscope')}")
        parser.exit()


def entry_point() -> NoReturn:
    """What the installed command calls."""
    limit_memory()
    keep_freed_memory()
    sys.exit(main())


if __name__ == "__main__":
    entry_point()
