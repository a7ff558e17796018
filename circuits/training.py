"""From a request to a trained run.

`prepare` finds or starts the run of a request, `train_run` trains what is missing, arms
side by side in processes; one that dies costs its arm only. A run's directory name
holds a hash of what it depends on, so the same request comes back to the same run and a
changed one, or changed code, does not. A worker is told where the run is and which arm
to train; it finds the rest in the manifest. Small models gain more from a process per
core than from threads.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from trained.arm import Arm
from trained.config import as_dict, override
from trained.device import device_named
from trained.errors import unknown
from trained.files import sweep
from trained.lock import owned
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import LITTER_AGE, Failures, require_whole, train, train_arm
from trained.workers import in_processes

from .claims import digest
from .study import Request, Study, find, judging_seeds

_ROOT = Path(__file__).resolve().parent.parent
_LIBRARIES = (
    *("reasonscope", "torch", "transformers", "transformer-lens", "numpy"),
    *("scipy", "scikit-learn", "safetensors"),
)


def prepare(request: Request) -> Run:
    """Find or start the run of a request; all of its input is checked here."""
    study = find(request.study)
    preset = study.preset(request.preset)
    config = override(preset.config, request.assignments)
    manifest = {
        "study": request.study,
        "preset": request.preset,
        "config": as_dict(config),
        "seeds": list(request.seeds or judging_seeds(preset.n_seeds)),
        "device": device_named(request.device),
        "claims_sha256": digest(study.claims_at(config)),
    }
    name = hashlib.blake2b(
        (json.dumps(manifest) + source_hash(study)).encode(), digest_size=4
    ).hexdigest()
    path = request.out / f"{study.slug}-{request.preset}-{name}"
    return Run.create(path, {**manifest, "environment": environment()})


def train_run(
    run: Run,
    *,
    observer: Observer | None = None,
    jobs: int | None = None,
    only: str = "*",
) -> None:
    """Train the arms of a run that are not finished, in `jobs` processes.

    Those that are finished have to be as they were written. What fails costs its seed
    or arm only and is named at the end (see `train`).

    Args:
        run: where they are stored.
        observer: what is told of the course of training.
        jobs: processes; None for one per core on a CPU.
        only: which arms, as a pattern of names.
    """
    arms = arms_left(run, only)
    for arm in _arms(run, only):
        if run.is_done(arm.name):
            require_whole(run, arm)
    jobs = jobs or _default_jobs(run.manifest["device"])
    if min(jobs, len(arms)) > 1:
        train_in_processes(run, arms, jobs=jobs, observer=observer or Observer())
    else:
        engine = Engine(device=run.manifest["device"])
        train(run, arms, engine=engine, observer=observer)


def arms_left(run: Run, only: str = "*") -> list[Arm]:
    """The arms of a run that match a pattern and are not trained to their end."""
    return [arm for arm in _arms(run, only) if not run.is_done(arm.name)]


def _arms(run: Run, only: str = "*") -> list[Arm]:
    study = find(run.study)
    every = study.arms(study.config_of(run.manifest["config"]))
    arms = [arm for arm in every if fnmatchcase(arm.name, only)]
    if not arms:
        raise unknown("arms", only, [arm.name for arm in every])
    return arms


class _Task(NamedTuple):
    """All that a process has to know."""

    path: Path
    arm: str


def train_in_processes(
    run: Run, arms: Sequence[Arm], *, jobs: int, observer: Observer
) -> None:
    """Train the arms, `jobs` at a time; each is stored as it is done."""
    by_name, failures = {arm.name: arm for arm in arms}, Failures()

    def done(task: _Task, error: Exception | None) -> None:
        arm = by_name[task.arm]
        if error is None:
            observer.on_finish(arm, run.record(arm.name)["seconds"])
        else:
            failures.add(arm.name, error)
            observer.on_failure(arm, error)

    with owned(run.path):
        sweep(run.path, LITTER_AGE)
        in_processes(
            _train_arm,
            [_Task(run.path, arm.name) for arm in arms],
            jobs=min(jobs, len(arms)),
            threads=max(1, (os.cpu_count() or 1) // jobs),
            done=done,
        )
    failures.complain(run.path)


def _train_arm(task: _Task) -> None:
    run = Run.open(task.path)
    (arm,) = (arm for arm in _arms(run) if arm.name == task.arm)
    train_arm(run, arm, engine=Engine(run.manifest["device"]), observer=Observer())


def _default_jobs(device: str) -> int:
    """One process per core on a CPU, one in all for an accelerator."""
    return (os.cpu_count() or 1) if device == "cpu" else 1


def environment() -> dict[str, str]:
    """The versions that results depend on."""
    versions = {name: version(name) for name in _LIBRARIES}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "commit": _commit(),
        **versions,
    }


def _commit() -> str:
    """The commit of this checkout, if that is what the code is."""
    try:
        top = _git("rev-parse", "--show-toplevel")
        # Installed into somebody's repository, it is not that one's commit.
        if Path(top).resolve() != _ROOT:
            return "unknown: not a git checkout"
        return _git("describe", "--always", "--dirty")
    except (OSError, subprocess.CalledProcessError):
        return "unknown: not a git checkout"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def code_hash(study: Study, root: Path = _ROOT) -> str:
    """The sha256 of all code of ours, and of a foreign study's, that judges a claim."""
    packages = (root / name for name in ("probes", "trained", "circuits"))
    ours = (file for package in packages for file in sorted(package.rglob("*.py")))
    found = hashlib.sha256()
    for file in (*ours, *study.sources, *study.claim_sources):
        found.update(file.read_bytes())
    return found.hexdigest()


def source_hash(study: Study) -> str:
    """A hash of the code that training depends on."""
    engine = sorted((_ROOT / "trained").glob("*.py"))
    found = hashlib.blake2b(digest_size=8)
    for file in (*engine, *study.sources):
        found.update(file.read_bytes())
    return found.hexdigest()
