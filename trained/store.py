"""Runs on disk: safetensors and JSON only, every file written whole or not at all.

A run is a directory:

    manifest.json                 study, preset, config, seeds, device, environment
    <arm>/arm.json                seeds, saved steps, hashes of data and of all files
                                  beside it, seconds: it is done
    <arm>/plan.json               how an unfinished arm is batched; gone when it is done
    <arm>/weights-<step>.safetensors   every tensor with a leading seed axis
    <arm>/metrics.safetensors     `step` and one [seed, record] tensor per metric
    <arm>/group-<i>/...           the state of an unfinished arm; gone when it is done
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .errors import BadInput, unknown

SCHEMA = 2

MANIFEST = {
    "schema": int,
    "study": str,
    "preset": str,
    "config": dict,
    "seeds": list,
    "device": str,
    "environment": dict,
}
"""What a manifest must hold, and of which type."""

RECORD = {"seeds": list, "saved_steps": list, "seconds": float, "files": dict}
"""The same for the record of a finished arm."""


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a safetensors file atomically; metadata values are stored as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    whole = {
        name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()
    }
    text = {key: json.dumps(value) for key, value in (metadata or {}).items()}
    save_file(whole, partial, metadata=text)
    _publish(partial, path)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and metadata of a file; `BadInput` if missing or truncated."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            text = file.metadata() or {}
        metadata = {key: json.loads(value) for key, value in text.items()}
    except (SafetensorError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"cannot read {path}: {reason}") from error
    return tensors, metadata


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n")
    _publish(partial, path)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; `BadInput` if it is broken."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from error


def sha256(path: Path) -> str:
    """The hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_fields(
    file: Path, found: Mapping[str, Any], fields: Mapping[str, type]
) -> None:
    for name, kind in fields.items():
        if not isinstance(found.get(name), kind):
            raise BadInput(f"{file} lacks a {kind.__name__} named {name}")


def _publish(partial: Path, path: Path) -> None:
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


@dataclass(frozen=True)
class Run:
    """A stored run; its manifest is read anew on each access."""

    path: Path

    @classmethod
    def create(cls, path: Path, manifest: Mapping[str, Any]) -> "Run":
        """Start a run, or come back to one that was started with the same manifest.

        `BadInput` if the stored one differs in more than the environment.
        """
        run = cls(path)
        if not (path / "manifest.json").exists():
            write_json(path / "manifest.json", {"schema": SCHEMA, **manifest})
        stored, asked = run.manifest, json.loads(json.dumps(manifest))
        odd = [key for key in asked if stored.get(key) != asked[key]]
        if set(odd) - {"environment"}:
            raise BadInput(
                f"{path} was started with another {odd[0]}; use another --out"
            )
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        """A run that exists; `BadInput` if there is none or its manifest is broken."""
        if not (path / "manifest.json").is_file():
            raise BadInput(f"{path} is not a run: it has no manifest.json")
        run = cls(path)
        _require_fields(path / "manifest.json", run.manifest, MANIFEST)
        if run.manifest["schema"] != SCHEMA:
            raise BadInput(
                f"{path}: schema {run.manifest['schema']}; this version reads {SCHEMA}"
            )
        return run

    @property
    def manifest(self) -> dict[str, Any]:
        """What was asked for: study, preset, config, seeds, device, environment."""
        return read_json(self.path / "manifest.json")

    @property
    def study(self) -> str:
        """The slug of the study that the run belongs to."""
        return str(self.manifest["study"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that were asked for."""
        return tuple(self.manifest["seeds"])

    def is_done(self, arm: str) -> bool:
        """Whether the arm is trained to its end."""
        return (self.path / arm / "arm.json").exists()

    def record(self, arm: str) -> dict[str, Any]:
        """What is known of a finished arm: its seeds, saved steps, seconds."""
        if not self.is_done(arm):
            done = sorted(file.parent.name for file in self.path.glob("*/arm.json"))
            raise unknown("finished arm", arm, done or "none yet; train the run first")
        file = self.path / arm / "arm.json"
        record = read_json(file)
        _require_fields(file, record, RECORD)
        return record

    def weights(self, arm: str, step: int | None = None) -> dict[str, Tensor]:
        """All tensors of a saved step (default: the last), seed axis first."""
        steps = self.record(arm)["saved_steps"]
        step = steps[-1] if step is None else step
        if step not in steps:
            raise unknown(f"saved step of {arm}", step, steps)
        return self._tensors(arm, f"weights-{step}.safetensors")

    def metrics(self, arm: str) -> dict[str, Tensor]:
        """`step` [record] and every metric [seed, record] over training."""
        return self._tensors(arm, "metrics.safetensors")

    def verify(self, arm: str, seeds: Sequence[int]) -> int:
        """The number of files of a finished arm; `BadInput` if one is not as written.

        Args:
            arm: its name.
            seeds: what it must have been trained with.
        """
        record = self.record(arm)
        if record["seeds"] != list(seeds):
            raise BadInput(
                f"{self.path}: arm {arm} has the seeds {record['seeds']}, not "
                f"{list(seeds)}"
            )
        names = [f"weights-{step}.safetensors" for step in record["saved_steps"]]
        for name in (*names, "metrics.safetensors", *record["files"]):
            self._check_file(arm, name, record)
        return len(record["files"])

    def _check_file(self, arm: str, name: str, record: Mapping[str, Any]) -> Path:
        """A file of an arm, which must be the one that was written."""
        file, known = self.path / arm / name, record["files"]
        if name not in known:
            raise BadInput(f"{file} is not in the record of arm {arm}")
        if not file.is_file():
            raise BadInput(f"{file} is missing")
        if sha256(file) != known[name]:
            raise BadInput(f"{file} was changed since it was written")
        return file

    def _tensors(self, arm: str, name: str) -> dict[str, Tensor]:
        """The tensors in a file of a finished arm."""
        return read_tensors(self._check_file(arm, name, self.record(arm)))[0]

    def finish(
        self, arm: str, metrics: Mapping[str, Tensor], record: Mapping[str, Any]
    ) -> None:
        """Store the metrics of an arm, mark it done and drop its unfinished state."""
        folder = self.path / arm
        write_tensors(folder / "metrics.safetensors", metrics)
        files = {f.name: sha256(f) for f in sorted(folder.glob("*.safetensors"))}
        write_json(folder / "arm.json", {**record, "files": files})
        (folder / "plan.json").unlink(missing_ok=True)
        for directory in folder.glob("group-*"):
            shutil.rmtree(directory)

    def save_weights(self, arm: str, step: int, weights: Mapping[str, Tensor]) -> None:
        """Store the weights of one step, seed axis first."""
        write_tensors(self.path / arm / f"weights-{step}.safetensors", weights)


def concatenate(groups: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Groups of seeds joined along their seed axis."""
    return {name: torch.cat([g[name] for g in groups]) for name in groups[0]}


SHIPPED = Path(__file__).parent / "checkpoints"
"""Where the shipped runs are."""


def shipped_names(folder: Path = SHIPPED) -> tuple[str, ...]:
    """The runs that are shipped."""
    return tuple(sorted(file.parent.name for file in folder.glob("*/manifest.json")))


def shipped(name: str, folder: Path = SHIPPED) -> Run:
    """A shipped run."""
    if name not in shipped_names(folder):
        raise unknown("zoo run", name, shipped_names(folder))
    return Run.open(folder / name)


def is_shipped(run: Run) -> bool:
    """Whether a run is one of the shipped, which stay as they are."""
    return run.path.resolve().parent == SHIPPED.resolve()


def open_run(path_or_name: str, folder: Path = SHIPPED) -> Run:
    """The run at a path, or the shipped one of that name."""
    if Path(path_or_name).exists():
        return Run.open(Path(path_or_name))
    if path_or_name not in shipped_names(folder):
        raise unknown("run or zoo run", path_or_name, shipped_names(folder))
    return shipped(path_or_name, folder)
