"""Files that are written whole or not at all: safetensors and JSON, never pickle.

A file is written under a name of its own beside its place, forced to the disk and then
put there, so that a reader never meets half of one and two writers never share one.
What a killed process leaves behind is swept by the next owner of the directory.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .errors import BadInput

PARTIAL = ".partial"
"""What the name of an unfinished file ends with."""


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a safetensors file atomically; metadata values are stored as JSON."""
    whole = {
        name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()
    }
    text = {key: json.dumps(value) for key, value in (metadata or {}).items()}
    with _replacing(path) as partial:
        try:
            save_file(whole, partial, metadata=text)
        except SafetensorError as error:
            raise _as_os_error(error, path) from error


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
    """Write JSON atomically, and see that it is still there after a power cut."""
    text = json.dumps(value, indent=1) + "\n"
    with _replacing(path) as partial:
        partial.write_text(text)
    sync_folder(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with _replacing(path) as partial:
        partial.write_bytes(content)
    sync_folder(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; `BadInput` if it is broken."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"cannot read {path}: {error}") from error


def sha256(path: Path) -> str:
    """The hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_hash(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, types, shapes and values."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Force a directory's entries to the disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path, age: float = 0.0) -> None:
    """Remove the unfinished files that killed processes left in a directory.

    Args:
        folder: it and all below it.
        age: seconds since they were last written to; 0 if nobody else can be writing.
    """
    for file in folder.rglob(f"*{PARTIAL}"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime >= age:
                file.unlink()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A fresh name beside a path, whose file takes that path's place at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{token_hex(4)}{PARTIAL}")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _as_os_error(error: SafetensorError, path: Path) -> Exception:
    """What the disk said, which safetensors tells in words only."""
    found = re.search(r"os error (\d+)", str(error))
    if found is None:
        return error
    number = int(found[1])
    return OSError(number, os.strerror(number), str(path))
