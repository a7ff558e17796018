"""The verbs `verify` (is a run whole, and what made it?) and `diff` (two verdicts)."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trained.errors import BadInput

from .output import JsonOutput, add_json_option
from .request import CONFIRMED, NOT_CONFIRMED

if TYPE_CHECKING:
    from trained.store import Run


def add_verify_options(parser: argparse.ArgumentParser) -> None:
    """The options of `verify`."""
    parser.add_argument("run", metavar="RUN_OR_ZOO")
    add_json_option(parser, "what was found")


def run_verify(options: argparse.Namespace) -> int:
    """Check every file of a run; `BadInput` names the first that is off."""
    from circuits.language import is_language
    from trained.store import Run, open_run

    path, output = Path(options.run), JsonOutput(options.json)
    if is_language(path):
        lines = verified_language(Run(path))
    else:
        lines = verified(open_run(options.run))
    output.finish({"run": options.run, "whole": True, "found": lines})
    output.say("\n".join(lines))
    return CONFIRMED


def verified(run: "Run") -> list[str]:
    """What made a run that is whole, line by line; `BadInput` if it is not."""
    from circuits.claims import digest
    from circuits.study import find

    study, manifest = find(run.study), run.manifest
    config = study.config_of(manifest["config"])
    arms = study.arms(config)
    count = sum(run.verify(arm.name, arm.seeds(run.seeds)) for arm in arms)
    known = manifest.get("claims_sha256")
    same = known == digest(study.claims_at(config))
    made = manifest["environment"]
    return [
        f"{run.path}: whole, {len(arms)} arms, {count} files as they were written",
        f"study {run.study}, preset {manifest['preset']}, seeds {manifest['seeds']}",
        f"made by commit {made.get('commit')}, torch {made.get('torch')}",
        f"claims: {'as' if same else 'changed since they were'} before training",
    ]


def verified_language(run: "Run") -> list[str]:
    """The same of what was measured on a language model."""
    from trained.state import read_checked

    files = sorted(run.path.glob("*.safetensors"))
    for file in files:
        read_checked(file)
    under_way = len(list(run.path.glob("*/state-*.safetensors")))
    manifest = run.manifest
    made = manifest["environment"]
    return [
        f"{run.path}: whole, {len(files)} measurements as they were written, "
        f"{under_way} under way",
        f"study {manifest['study']}, model {manifest['model']} ({manifest['dtype']})",
        f"made by commit {made.get('commit')}, torch {made.get('torch')}",
    ]


def add_diff_options(parser: argparse.ArgumentParser) -> None:
    """The options of `diff`."""
    parser.add_argument("first", type=Path, metavar="A.json")
    parser.add_argument("second", type=Path, metavar="B.json")
    add_json_option(parser, "the differences")


def run_diff(options: argparse.Namespace) -> int:
    """Print where two verdict files differ; the exit code says whether they do."""
    output = JsonOutput(options.json)
    lines = differences(_verdicts(options.first), _verdicts(options.second))
    output.finish({"same": not lines, "differences": lines})
    output.say("\n".join(lines) or "the same verdicts")
    return NOT_CONFIRMED if lines else CONFIRMED


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """A line for every claim whose verdict, expectation or presence differs."""
    lines = []
    for name in (*first, *(name for name in second if name not in first)):
        one, other = first.get(name), second.get(name)
        if one is None or other is None:
            lines.append(f"{name}: only in {'A' if other is None else 'B'}")
        elif one["verdict"] != other["verdict"]:
            lines.append(f"{name}: {_shown(one)} -> {_shown(other)}")
        elif one["expected"] != other["expected"]:
            lines.append(f"{name}: expected {one['expected']} -> {other['expected']}")
    return lines


def _shown(verdict: dict[str, Any]) -> str:
    mean = verdict["mean"]
    value = "" if mean is None else f" {mean:.4g}"
    return f"{verdict['verdict']}{value} ({verdict['expected']})"


def _verdicts(path: Path) -> dict[str, Any]:
    """The verdicts of a file by claim; of several studies together."""
    from circuits.report.files import read_objects

    try:
        objects = read_objects(path)
        return {v["claim"]: v for entry in objects for v in entry["verdicts"]}
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a verdict file: {error}") from error
