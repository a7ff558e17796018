"""Runs on disk: safetensors and JSON only, every file written whole or not at all.

A run is a directory:

    manifest.json                 study, preset, config, seeds, device, environment
    <arm>/arm.json                seeds, saved steps, hashes of data, model, code and of
                                  all files beside it, seconds; seeds that failed
    <arm>/plan.json               how an unfinished arm is batched; gone when it is done
    <arm>/weights-<step>.safetensors   every tensor with a leading seed axis
    <arm>/metrics.safetensors     `step` and one [seed, record] tensor per metric
    <arm>/group-<i>/...           the state of an unfinished arm; gone when it is done
    .lock, <arm>/.lock            the process that trains it; gone when it has ended
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import BadInput, unknown
from .files import read_json as read_json
from .files import read_tensors as read_tensors
from .files import sha256 as sha256
from .files import sync_folder
from .files import write_json as write_json
from .files import write_tensors as write_tensors
from .schema import SCHEMA as SCHEMA
from .schema import check_manifest, check_record, check_schema, is_plain_name
from .zoo import SHIPPED, shipped_names

_REMEDY = "; remove its folder to train the arm again"


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
            sync_folder(path.parent)
        stored, asked = run.manifest, json.loads(json.dumps(manifest))
        check_schema(path / "manifest.json", stored)
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
        check_manifest(path / "manifest.json", run.manifest)
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

    def folder(self, arm: str) -> Path:
        """Where an arm is stored; its name, which may come from a file, is no path."""
        if not is_plain_name(arm):
            raise BadInput(f"{self.path}: '{arm}' cannot be the name of an arm")
        return self.path / arm

    def is_done(self, arm: str) -> bool:
        """Whether the arm is trained to its end, with all of its seeds."""
        return self.is_stored(arm) and not self.failed(arm)

    def is_stored(self, arm: str) -> bool:
        """Whether seeds of the arm can be read, though others may have failed."""
        return (self.folder(arm) / "arm.json").exists()

    def failed(self, arm: str) -> dict[int, str]:
        """The seeds of a stored arm that could not be trained, and why."""
        found = self.record(arm).get("failed", {})
        return {int(seed): reason for seed, reason in found.items()}

    def record(self, arm: str) -> dict[str, Any]:
        """What is known of a stored arm: its seeds, saved steps, seconds."""
        if not self.is_stored(arm):
            done = sorted(file.parent.name for file in self.path.glob("*/arm.json"))
            raise unknown("finished arm", arm, done or "none yet; train the run first")
        file = self.folder(arm) / "arm.json"
        record = read_json(file)
        check_record(file, record)
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
        for seed, reason in self.failed(arm).items():
            raise BadInput(
                f"{self.path}: arm {arm} lacks seed {seed}: {reason}; train it again"
            )
        if record["seeds"] != list(seeds):
            raise BadInput(
                f"{self.path}: arm {arm} has the seeds {record['seeds']}, not "
                f"{list(seeds)}"
            )
        manifest = self.path / "manifest.json"
        if record.get("manifest_sha256", sha256(manifest)) != sha256(manifest):
            raise BadInput(f"{manifest} was changed since arm {arm} was trained")
        names = [f"weights-{step}.safetensors" for step in record["saved_steps"]]
        for name in (*names, "metrics.safetensors", *record["files"]):
            self._check_file(arm, name, record)
        return len(record["files"])

    def _check_file(self, arm: str, name: str, record: Mapping[str, Any]) -> Path:
        """A file of an arm, which must be the one that was written."""
        file, known = self.folder(arm) / name, record["files"]
        if name not in known:
            raise BadInput(f"{file} is not in the record of arm {arm}")
        if not file.is_file():
            raise BadInput(f"{file} is missing{_REMEDY}")
        if sha256(file) != known[name]:
            raise BadInput(f"{file} was changed since it was written{_REMEDY}")
        return file

    def _tensors(self, arm: str, name: str) -> dict[str, Tensor]:
        """The tensors in a file of a finished arm."""
        return read_tensors(self._check_file(arm, name, self.record(arm)))[0]

    def finish(
        self, arm: str, metrics: Mapping[str, Tensor], record: Mapping[str, Any]
    ) -> None:
        """Store the metrics and the record of an arm, whose weights are stored.

        If no seed failed, the arm is done and its unfinished state is dropped.
        """
        folder = self.folder(arm)
        write_tensors(folder / "metrics.safetensors", metrics)
        files = {f.name: sha256(f) for f in sorted(folder.glob("*.safetensors"))}
        # The record says that the files are there, so they have to be there first.
        sync_folder(folder)
        made = {"manifest_sha256": sha256(self.path / "manifest.json"), "files": files}
        write_json(folder / "arm.json", {**record, **made})
        if not record.get("failed"):
            (folder / "plan.json").unlink(missing_ok=True)
            for directory in folder.glob("group-*"):
                shutil.rmtree(directory)

    def save_weights(self, arm: str, step: int, weights: Mapping[str, Tensor]) -> None:
        """Store the weights of one step, seed axis first."""
        write_tensors(self.folder(arm) / f"weights-{step}.safetensors", weights)


def concatenate(groups: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Groups of seeds joined along their seed axis."""
    return {name: torch.cat([g[name] for g in groups]) for name in groups[0]}


def shipped(name: str, folder: Path = SHIPPED) -> Run:
    """A shipped run."""
    if name not in shipped_names(folder):
        raise unknown("zoo run", name, shipped_names(folder))
    return Run.open(folder / name)


def is_shipped(run: Run) -> bool:
    """Whether a run is one of the shipped, which stay as they are."""
    return run.path.resolve().parent == SHIPPED.resolve()


def name_of(run: Run) -> str:
    """What `open_run` finds a run by: the name of a shipped one, else its path."""
    return run.path.name if is_shipped(run) else str(run.path)


def open_run(path_or_name: str, folder: Path = SHIPPED) -> Run:
    """The run at a path, or the shipped one of that name."""
    if Path(path_or_name).exists():
        return Run.open(Path(path_or_name))
    if path_or_name not in shipped_names(folder):
        raise unknown("run or zoo run", path_or_name, shipped_names(folder))
    return shipped(path_or_name, folder)
