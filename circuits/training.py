"""From a request to a trained run.

`prepare` finds or starts the run of a request, `train_run` trains what is missing, arms
and seeds side by side in processes or on a cluster; one that dies costs its arm only. A
run's directory name holds a hash of what it depends on, so the same request comes back
to the same run and a changed one, or changed code, does not. A worker is told where the
run is and which arm to train; it finds the rest in the manifest. Small models gain more
from a process per core than from threads.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from trained.arm import Arm
from trained.config import as_dict
from trained.courses import Course, Round, drive
from trained.device import device_named
from trained.errors import BadInput, Lost, in_a_line, unknown
from trained.fast import check_fast
from trained.files import read_json, sweep
from trained.groups import group_folder
from trained.lock import owned
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import (
    LITTER_AGE,
    Failures,
    begin_arm,
    require_whole,
    train,
    train_arm,
    train_group,
)
from trained.workers import Executor, Processes, Result

from . import progress
from .claims import digest
from .results import arm_seconds
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
    config = request.config()
    device = device_named(request.device)
    check_fast(request.fast, device)
    manifest = {
        "study": request.study,
        "preset": request.preset,
        "config": as_dict(config),
        "seeds": list(request.seeds or judging_seeds(preset.n_seeds)),
        "device": device,
        "claims_sha256": digest(study.claims_at(config)),
    }
    if request.fast:
        manifest["fast"] = list(request.fast)
    name = hashlib.blake2b(
        (json.dumps(manifest) + source_hash(study)).encode(), digest_size=4
    ).hexdigest()
    path = request.out / f"{study.slug}-{request.preset}-{name}"
    return Run.create(path, {**manifest, "environment": environment()})


def train_run(
    run: Run,
    *,
    observer: Observer | None = None,
    executor: Executor | None = None,
    only: str = "*",
) -> None:
    """Train the arms of a run that are not finished.

    Those that are finished have to be as they were written. What fails costs its seed
    or arm only and is named at the end (see `train`).

    Args:
        run: where they are stored.
        observer: what is told of the course of training; None: what fails is said.
        executor: what trains arms and seeds side by side, such as `Processes(2)` or a
            `Cluster`; None: one after the other, here.
        only: which arms, as a pattern of names.
    """
    drive(executor, [training(run, executor, observer=observer, only=only)])


def training(
    run: Run,
    executor: Executor | None,
    *,
    observer: Observer | None = None,
    only: str = "*",
) -> Course[None]:
    """The course of `train_run`; it has no rounds where all is done here."""
    arms = arms_left(run, only)
    for arm in _arms(run, only):
        if run.is_done(arm.name):
            require_whole(run, arm)
    slug, engine = find(run.study).slug, _engine(run)
    observer, left = observer or _Complaints(slug), _Left(run, arms)
    with progress.step(f"{slug}: training", left.total, left.trained):
        if executor is not None and arms:
            yield from _side_by_side(run, left.longest_first, observer)
        else:
            train(run, arms, engine=engine, observer=observer)


def _engine(run: Run) -> Engine:
    """How a run says that it is trained."""
    fast = tuple(run.manifest.get("fast", ()))
    return Engine(device=run.manifest["device"], fast=fast)


class _Complaints(Observer):
    """Says at once what the end will say again."""

    def __init__(self, study: str) -> None:
        self._study = study

    def on_failure(self, arm: Arm, error: Exception) -> None:
        progress.say(f"{self._study}: {arm.name} failed: {in_a_line(error)}")


class _Left:
    """How much of some arms is trained, wherever that is done: their files tell.

    Arms count by the seconds that they took in a stored run of the same preset, the
    others by the mean of these.
    """

    def __init__(self, run: Run, arms: Sequence[Arm]) -> None:
        took = arm_seconds(find(run.study).slug, run.manifest["preset"])
        known = [took[arm.name] for arm in arms if arm.name in took]
        mean = sum(known) / len(known) if known else 1.0
        self._run, self._weights = run, [(a, took.get(a.name, mean)) for a in arms]
        self.total = sum(weight for _, weight in self._weights)

    @property
    def longest_first(self) -> list[Arm]:
        """The arms in an order that leaves no process without work at the end."""
        return [arm for arm, _ in sorted(self._weights, key=lambda pair: -pair[1])]

    def trained(self) -> tuple[float, str]:
        """The weight that is trained, and how many arms."""
        shares = [_share(self._run, arm) for arm, _ in self._weights]
        done = sum(s * w for s, (_, w) in zip(shares, self._weights, strict=True))
        return done, f"{shares.count(1.0)} of {len(shares)} arms"


def _share(run: Run, arm: Arm) -> float:
    """How much of an arm is trained, by what is stored of it."""
    if run.is_done(arm.name):
        return 1.0
    folder = run.folder(arm.name)
    try:
        groups = len(read_json(folder / "plan.json")["groups"])
    except (BadInput, KeyError):
        return 0.0
    taken = sum(_taken(group_folder(folder, index), arm) for index in range(groups))
    # What is whole has still to be put together.
    return min(0.99, taken / (groups * arm.steps))


def _taken(folder: Path, arm: Arm) -> int:
    """The steps that a group of seeds has behind it."""
    found = [0]
    for file in folder.glob("state-*.safetensors"):
        try:
            with safe_open(file, framework="pt") as stored:
                place: Mapping[str, str] = stored.metadata()
            whole = arm.stages[: int(place["stage"])]
            found.append(sum(s.steps for s in whole) + int(place["step"]))
        except (OSError, SafetensorError, KeyError, ValueError):
            # Half a file, or one that is just replaced: there is another.
            continue
    return max(found)


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
    """All that a process has to know: one group of an arm, or the arm from its plan."""

    path: Path
    arm: str
    group: int | None = None
    spent: float | None = None
    """Seconds that its groups took; None: the arm has still to be begun."""


def _side_by_side(run: Run, arms: Sequence[Arm], observer: Observer) -> Course[None]:
    """Train the arms, and the seeds of an arm that are not stacked, side by side.

    Each arm is stored as soon as all of its seeds are trained.
    """
    with owned(run.path):
        sweep(run.path, LITTER_AGE)
        trained = _Trained(run, arms, observer)
        yield Round(_train_part, trained.tasks(), trained.done)
    trained.failures.complain(run.path)


class _Trained:
    """What of a run's arms is trained, and what follows."""

    def __init__(self, run: Run, arms: Sequence[Arm], observer: Observer) -> None:
        self._run, self._observer = run, observer
        self._arms = {arm.name: arm for arm in arms}
        self._open: dict[str, int] = {}
        self._spent = dict.fromkeys(self._arms, 0.0)
        self.failures = Failures()

    def tasks(self) -> list[_Task]:
        """What can be done at once."""
        path = self._run.path.resolve()
        return [_Task(path, name) for name in self._arms]

    def done(self, task: _Task, result: Result) -> list[_Task]:
        """Take in what came of a task; the tasks that follow from it."""
        arm = self._arms[task.arm]
        # Whatever else goes wrong in a group, the arm meets again and reports.
        if result.error and (task.group is None or isinstance(result.error, Lost)):
            self.failures.add(arm.name, result.error)
            self._observer.on_failure(arm, result.error)
            return []
        if task.group is not None:
            return self._after_group(task, result.value or 0.0)
        if result.value:
            self._open[arm.name] = result.value
            return [task._replace(group=index) for index in range(result.value)]
        self._observer.on_finish(arm, self._run.record(arm.name)["seconds"])
        return []

    def _after_group(self, task: _Task, seconds: float) -> list[_Task]:
        self._open[task.arm] -= 1
        self._spent[task.arm] += seconds
        if self._open[task.arm] or self.failures.has(task.arm):
            return []
        return [task._replace(group=None, spent=self._spent[task.arm])]


def _train_part(task: _Task) -> float | int | None:
    """Begin an arm, train a group of it, or put it together.

    Returns:
        How many groups are to be trained, the seconds of a group, None when all is
        done.
    """
    run = Run.open(task.path)
    (arm,) = (arm for arm in _arms(run) if arm.name == task.arm)
    engine = _engine(run)
    if task.group is not None:
        return train_group(run, arm, task.group, engine=engine)
    if task.spent is None and (count := begin_arm(run, arm, engine=engine)) > 1:
        return count
    train_arm(run, arm, engine=engine, observer=Observer(), spent=task.spent or 0.0)
    return None


def executor_for(request: Request) -> Executor | None:
    """What does the work of a request: its cluster, or processes on this machine.

    One process per core on a CPU; on an accelerator one in all, which is this one.
    """
    if request.cluster is not None:
        return request.cluster
    on_cpu = device_named(request.device) == "cpu"
    every = (os.cpu_count() or 1) if on_cpu else 1
    jobs = request.jobs or every
    return Processes(jobs) if jobs > 1 else None


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
