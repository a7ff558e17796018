"""GGUF files as ordinary model directories, converted once and kept.

Reading a GGUF file takes transformers half a minute; the directory that it becomes
(dense safetensors, tokenizer, configuration) loads in under a second. A conversion is
known by the hash of its file, so a changed file never meets an old conversion.
"""

import hashlib
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from trained.errors import BadInput

from .smollm2 import REMEDY


def cache_folder() -> Path:
    """Where conversions are kept.

    `REASONSCOPE_CACHE`, else `reasonscope` in `XDG_CACHE_HOME` or `~/.cache`.
    """
    if chosen := os.environ.get("REASONSCOPE_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "reasonscope"


def converted(gguf: Path, dtype: torch.dtype, *, sha256: str | None = None) -> Path:
    """The model directory made from a GGUF file, converting it the first time.

    Args:
        gguf: the file.
        dtype: the type of the stored weights.
        sha256: the hash that the file must have; None: any.
    """
    digest = _digest(gguf)
    if sha256 is not None and digest != sha256:
        raise BadInput(f"{gguf} is not the expected file: its sha256 is {digest}")
    precision = str(dtype).removeprefix("torch.")
    folder = cache_folder() / f"{gguf.stem}-{digest[:16]}-{precision}"
    if not folder.is_dir():
        _convert(gguf, dtype, folder)
    return folder


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _convert(gguf: Path, dtype: torch.dtype, folder: Path) -> None:
    """Write the directory beside its place, then move it there in one step."""
    if find_spec("gguf") is None:
        raise BadInput(f"reading {gguf.name} needs the package gguf: {REMEDY}")
    try:
        model, tokenizer = _read(gguf, dtype)
    except (ValueError, KeyError, OSError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"cannot read {gguf}: {reason}") from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    try:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        _publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _read(gguf: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """The dense model and the tokenizer that a GGUF file holds."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    packed = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        dtype=dtype,
        quantization_config=GgufConfig(dequantize=True),
        **source,
    )
    # transformers refuses to save a model that came from GGUF, though its weights
    # are dense by now: a fresh model of the same configuration takes them over.
    with torch.device("meta"):
        dense = type(packed)(packed.config)
    dense.load_state_dict(packed.state_dict(), assign=True)
    dense.tie_weights()
    return dense, tokenizer


def _publish(partial: Path, folder: Path) -> None:
    # mkdtemp makes the directory private; a cache may be shared.
    partial.chmod(0o755)
    try:
        partial.rename(folder)
    except OSError:
        # Another process converted the same file meanwhile.
        if not folder.is_dir():
            raise
