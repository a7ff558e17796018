"""From a request to a run to verdicts: the two halves that the command and scripts use.

`prepare` finds or starts the run of a request, `train_run` trains what is missing,
`confirm_run` measures and judges. A run's directory name holds a hash of what it
depends on, so the same request comes back to the same run and a changed one, or
changed code, does not.
"""

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trained import store
from trained.config import as_dict, override
from trained.errors import BadInput
from trained.store import Run, write_json
from trained.trainer import Engine, Observer
from trained.training import threads, train

from .claims import Verdict, judge
from .command.request import Request
from .command.workers import train_in_processes
from .study import Study, find

_ROOT = Path(__file__).resolve().parent.parent
_LIBRARIES = (
    *("torch", "transformers", "transformer-lens", "numpy", "scikit-learn"),
    "safetensors",
)


@dataclass(frozen=True)
class Confirmation:
    """The verdicts of a run."""

    run: Run
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every gated claim was confirmed."""
        return all(v.passed for v in self.verdicts if v.claim.gated)

    def as_dict(self) -> dict[str, Any]:
        """The object that `--json` writes."""
        manifest = self.run.manifest
        keys = ("study", "preset", "config", "seeds", "device")
        return {
            "schema": manifest["schema"],
            **{key: manifest[key] for key in keys},
            "seconds": round(self.seconds, 1),
            "environment": manifest["environment"],
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
        }

    def _repr_html_(self) -> str:
        from .tables import verdict_html

        return verdict_html(self.verdicts)


def prepare(request: Request) -> Run:
    """Find or start the run of a request; all of its input is checked here."""
    study = find(request.study)
    preset = study.preset(request.preset)
    config = override(preset.config, request.assignments)
    seeds = request.seeds or tuple(range(preset.n_seeds))
    device = _device(request.device)
    manifest = {
        "study": study.slug,
        "preset": request.preset,
        "config": as_dict(config),
        "seeds": list(seeds),
        "device": device,
    }
    digest = hashlib.blake2b(
        (json.dumps(manifest) + _source_hash(study.slug)).encode(), digest_size=4
    ).hexdigest()
    path = request.out / f"{study.slug}-{request.preset}-{digest}"
    return Run.create(path, {**manifest, "environment": environment()})


def train_run(
    run: Run, *, observer: Observer | None = None, jobs: int | None = None
) -> None:
    """Train the arms of a run that are not finished, in `jobs` processes."""
    study, config = study_of(run)
    jobs = jobs or _default_jobs(run.manifest["device"])
    arms = [arm for arm in study.arms(config) if not run.is_done(arm.name)]
    if min(jobs, len(arms)) > 1:
        train_in_processes(run, arms, jobs=jobs, observer=observer or Observer())
    else:
        engine = Engine(device=run.manifest["device"])
        train(run, arms, engine=engine, observer=observer)


def confirm_run(run: Run, *, started: float | None = None) -> Confirmation:
    """Measure a trained run, judge its study's claims and store the verdicts.

    Args:
        run: a run whose arms are all trained.
        started: `time.perf_counter()` when the work began, if it began before this
            call; the time since then is reported.
    """
    started = started or time.perf_counter()
    study, config = study_of(run)
    arms = study.arms(config)
    unfinished = [arm.name for arm in arms if not run.is_done(arm.name)]
    if unfinished:
        raise BadInput(f"{run.path} is not trained yet: {', '.join(unfinished)}")
    with threads(1):
        verdicts = judge(study.claims(config), study.observe(run))
    seconds = time.perf_counter() - started
    confirmation = Confirmation(run, verdicts, seconds)
    if run.path.resolve().parent != store.SHIPPED.resolve():
        # A shipped run stays as it is.
        write_json(run.path / "verdicts.json", confirmation.as_dict())
    return confirmation


def study_of(run: Run) -> tuple[Study, Any]:
    """The study and the configuration of a run."""
    study = find(run.study)
    return study, study.config(run.manifest["config"])


def _default_jobs(device: str) -> int:
    """One process per core on a CPU, one in all for an accelerator."""
    return (os.cpu_count() or 1) if device == "cpu" else 1


def _device(name: str) -> str:
    import torch

    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        return "cuda" if present["cuda"] else "cpu"
    if not present[name]:
        raise BadInput(f"device '{name}' is not present on this machine; use cpu")
    return name


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
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown: not a git checkout"
    return done.stdout.strip()


def _source_hash(slug: str) -> str:
    """A hash of the code that training depends on."""
    package = _ROOT / "trained"
    files: Sequence[Path] = sorted(
        [*package.glob("*.py"), *(package / slug).rglob("*.py")]
    )
    digest = hashlib.blake2b(digest_size=8)
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
