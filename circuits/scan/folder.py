"""The folder of a scan: what it was made of, and which shards are there."""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from circuits.datasets.dataset import Dataset
from circuits.models.language_model import LanguageModel
from circuits.models.open import behind
from trained.errors import BadInput
from trained.files import read_json, write_json
from trained.fingerprint import parameter_hash
from trained.lock import LOCK

from .request import Settings
from .tables import SCHEMA, folder_of, is_whole

MANIFEST, SUMMARY = "manifest.json", "summary.json"

SHARD = 128
"""Prompts of a shard, at most: what is lost by a kill, and held at a time."""

LIBRARIES = ("torch", "transformers", "numpy", "pyarrow")
"""Whose versions the last bits depend on."""


def shards(n_prompts: int) -> list[range]:
    """The prompts of every shard: as few as can be, and as equal as can be.

    >>> shards(130)
    [range(0, 65), range(65, 130)]
    """
    count = -(-n_prompts // SHARD)
    ends = [number * n_prompts // count for number in range(count + 1)]
    return [range(a, b) for a, b in pairwise(ends)]


def identity(model: LanguageModel, data: Dataset, settings: Settings) -> dict[str, Any]:
    """What the bytes of the shards follow from."""
    _, hf = behind(model.module)
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "shard": SHARD,
        "settings": {**asdict(settings), "signals": list(settings.signals)},
        "model": {"weights": parameter_hash(dict(hf.named_parameters()))},
        "data": {"prompts": len(data), "sha256": data.sha256},
        "versions": {name: version(name) for name in LIBRARIES},
    }
    text = json.dumps(found, sort_keys=True)
    return {**found, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def begin(folder: Path, made_of: dict[str, Any]) -> None:
    """Write what the folder is made of, or refuse one of another scan."""
    file = folder / MANIFEST
    if not file.exists():
        foreign = [f.name for f in folder.iterdir() if f.name != LOCK]
        if foreign:
            raise BadInput(
                f"{folder} holds {foreign[0]} and is no scan; choose another folder"
            )
        write_json(file, made_of)
        return
    stored = read_json(file)
    if stored != made_of:
        raise BadInput(
            f"{folder} holds another scan: {_difference(stored, made_of)}; choose "
            "another folder"
        )


def _difference(stored: Any, given: Any, name: str = "") -> str:
    """The first thing in which two manifests differ."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in dict.fromkeys((*given, *stored)):
            if stored.get(key) != given.get(key):
                return _difference(stored.get(key), given.get(key), str(key))
    return f"{name} is {_short(stored)} there, {_short(given)} here"


def _short(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def file_of(folder: Path, name: str, number: int) -> Path:
    """The table of a signal in a shard."""
    return folder / folder_of(name) / f"{number:05d}.parquet"


def is_done(folder: Path, settings: Settings, number: int) -> bool:
    """Whether all tables of a shard are there."""
    names = ("prompts", *settings.signals)
    return all(is_whole(file_of(folder, name, number)) for name in names)
