"""From a request to a trained run.

`prepare` finds or starts the run of a request, `train_run` trains what is missing, arms
side by side in processes. A run's directory name holds a hash of what it depends on, so
the same request comes back to the same run and a changed one, or changed code, does
not. A worker is told where the run is and which arm to train; it finds the rest in the
manifest. Small models gain more from a process per core than from threads.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatchcase
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

from trained.arm import Arm
from trained.config import as_dict, override
from trained.device import device_named
from trained.errors import unknown
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import train

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

    Args:
        run: where they are stored.
        observer: what is told of the course of training.
        jobs: processes; None for one per core on a CPU.
        only: which arms, as a pattern of names.
    """
    arms = arms_left(run, only)
    jobs = jobs or _default_jobs(run.manifest["device"])
    if min(jobs, len(arms)) > 1:
        train_in_processes(run, arms, jobs=jobs, observer=observer or Observer())
    else:
        engine = Engine(device=run.manifest["device"])
        train(run, arms, engine=engine, observer=observer)


def arms_left(run: Run, only: str = "*") -> list[Arm]:
    """The arms of a run that match a pattern and are not trained to their end."""
    study = find(run.study)
    every = study.arms(study.config_of(run.manifest["config"]))
    arms = [arm for arm in every if fnmatchcase(arm.name, only)]
    if not arms:
        raise unknown("arms", only, [arm.name for arm in every])
    return [arm for arm in arms if not run.is_done(arm.name)]


def train_in_processes(
    run: Run, arms: Sequence[Arm], *, jobs: int, observer: Observer
) -> None:
    """Train the arms, `jobs` at a time; each is stored as it is done."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ProcessPoolExecutor(
        min(jobs, len(arms)), get_context("spawn"), _set_threads, (threads,)
    )
    with pool:
        waiting = {pool.submit(_train_arm, run.path, arm.name): arm for arm in arms}
        try:
            for future in as_completed(waiting):
                future.result()
                arm = waiting[future]
                observer.on_finish(arm, run.record(arm.name)["seconds"])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _set_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def _train_arm(path: Path, name: str) -> None:
    run = Run.open(path)
    study = find(run.study)
    config = study.config_of(run.manifest["config"])
    arms = [arm for arm in study.arms(config) if arm.name == name]
    train(run, arms, engine=Engine(device=run.manifest["device"]))


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
