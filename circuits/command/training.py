"""The verb `train`: a study's models, stored as a run."""

import argparse
from typing import TYPE_CHECKING, Any

from .output import JsonOutput, add_json_option
from .request import CONFIRMED, add_request_options, request_from

if TYPE_CHECKING:
    from trained.store import Run


def add_train_options(parser: argparse.ArgumentParser) -> None:
    """The options of `train`."""
    parser.add_argument("study", metavar="STUDY")
    parser.add_argument(
        "--arms", default="*", metavar="ARMS", help="only these, like 'gpt-*'"
    )
    add_json_option(parser, "the run and its arms")
    add_request_options(parser)


def run_train(options: argparse.Namespace) -> int:
    """Train what is not trained yet and print where it is stored."""
    request = request_from(options.study, options)
    output = JsonOutput(options.json)
    from circuits.training import executor_for, prepare, train_run

    run = prepare(request)
    train_run(run, executor=executor_for(request), only=options.arms)
    output.finish(_object(run))
    output.say(str(run.path))
    return CONFIRMED


def _object(run: "Run") -> dict[str, Any]:
    """What the run is of, and each arm's seeds and seconds; null: not trained yet."""
    from circuits.study import find

    study, manifest = find(run.study), run.manifest
    names = [arm.name for arm in study.arms(study.config_of(manifest["config"]))]
    records = {name: run.record(name) if run.is_done(name) else None for name in names}
    return {
        "run": str(run.path),
        **{key: manifest[key] for key in ("study", "preset", "seeds", "device")},
        "arms": {
            name: record and {key: record[key] for key in ("seeds", "seconds")}
            for name, record in records.items()
        },
    }
