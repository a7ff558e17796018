"""What a stored run must look like: files from elsewhere are data, and checked."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import BadInput

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
"""The same for the record of a stored arm."""


def check_schema(file: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that another version wrote."""
    found = manifest.get("schema")
    if found != SCHEMA:
        raise BadInput(f"{file}: schema {found}; this version reads {SCHEMA}")


def check_manifest(file: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest that is not one."""
    _require_fields(file, manifest, MANIFEST)
    check_schema(file, manifest)
    _require_numbers(file, manifest, "seeds")


def check_record(file: Path, record: Mapping[str, Any]) -> None:
    """Refuse the record of an arm that is empty, or names what is not beside it."""
    _require_fields(file, record, RECORD)
    _require_numbers(file, record, "seeds")
    _require_numbers(file, record, "saved_steps")
    for name, digest in record["files"].items():
        if not is_plain_name(name) or not _is_sha256(digest):
            raise BadInput(f"{file}: '{name}' is not a file beside it with a sha256")
    failed = record.get("failed", {})
    if not isinstance(failed, dict) or not all(
        re.fullmatch("-?[0-9]+", seed) and isinstance(reason, str)
        for seed, reason in failed.items()
    ):
        raise BadInput(f"{file}: 'failed' does not give a reason per seed")


def check_plan(file: Path, plan: Mapping[str, Any], seeds: Sequence[int]) -> None:
    """Refuse the plan of an unfinished arm that is not one, or of other seeds."""
    _require_fields(file, plan, {"batching": str, "threads": int, "groups": list})
    known = [seed for group in plan["groups"] for seed in group]
    if not plan["groups"] or set(known) != set(seeds):
        raise BadInput(f"{file} has the seeds {known}, not {list(seeds)}")


def is_plain_name(name: str) -> bool:
    """Whether a name is that of a file in a directory, and leads nowhere else."""
    return re.fullmatch(r"[^/\\\0]+", name) is not None and name not in (".", "..")


def _require_fields(
    file: Path, found: Mapping[str, Any], fields: Mapping[str, type]
) -> None:
    for name, kind in fields.items():
        if not isinstance(found.get(name), kind):
            raise BadInput(f"{file} lacks a {kind.__name__} named {name}")


def _require_numbers(file: Path, found: Mapping[str, Any], name: str) -> None:
    """One or more whole numbers, none twice."""
    values = found[name]
    whole = all(type(value) is int for value in values)
    if not values or not whole or len(set(values)) != len(values):
        raise BadInput(
            f"{file}: {name} must be whole numbers, at least one, none twice"
        )


def _is_sha256(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) is not None
