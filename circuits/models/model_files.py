"""A model's files, wherever they are, as a transformers model and its tokenizer.

Model files from elsewhere are data: only safetensors are read, and code that comes
with a model is never run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from circuits.backends.families import family_named
from trained.errors import BadInput

from . import smollm2
from .gguf_conversion import converted

HUB_TIMEOUT = 5.0
"""Seconds until a hub that does not answer counts as out of reach."""


class CannotOpen(BadInput):
    """The files are missing or broken; elsewhere there may be better ones."""


@dataclass(frozen=True)
class Loading:
    """How a model is loaded.

    Attributes:
        dtype: the type of the weights.
        device: a torch device, or `spread` for all of them, by accelerate.
        families: whether the model must be of a family whose layout is known.
    """

    dtype: torch.dtype
    device: str
    families: bool


def load(name: str, how: Loading) -> tuple[Any, Any]:
    """The transformers model and its tokenizer, from local files if there are any."""
    folder = _folder(name, how.dtype)
    if folder is not None:
        return _from_files(str(folder), how)
    if Path(name).is_absolute() or name.startswith(("./", "../", "~")):
        raise BadInput(f"there is no model at {name}")
    try:
        return _from_files(name, how)
    except CannotOpen:
        _require_hub(name)
    return _from_files(name, how, local=False)


def _folder(name: str, dtype: torch.dtype) -> Path | None:
    """The local directory that a name stands for; None if it must be on the hub."""
    if name == "smollm2":
        return converted(smollm2.gguf_file(), dtype, sha256=smollm2.SHA256)
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise BadInput(f"{name} is neither a model directory nor a .gguf file")
        return converted(path, dtype)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise BadInput(f"{name} has no config.json: it is not a model directory")
        return path
    return None


def _from_files(name: str, how: Loading, *, local: bool = True) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    # False, not None: with None transformers asks on the terminal and waits.
    common = {"local_files_only": local, "trust_remote_code": False}
    spread = {"device_map": "auto"} if how.device == "spread" else {}
    try:
        config = AutoConfig.from_pretrained(name, **common)
        if how.families:
            # Before the weights, which may be a long download.
            family_named(config.model_type)
        tokenizer = AutoTokenizer.from_pretrained(name, **common)
        with _bars(shown=not local):
            hf = AutoModelForCausalLM.from_pretrained(
                name, dtype=how.dtype, use_safetensors=True, **spread, **common
            )
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise CannotOpen(f"cannot open {name}: {reason}") from error
    hf = hf.eval().requires_grad_(False)
    return (hf if spread else hf.to(how.device)), tokenizer


@contextmanager
def _bars(*, shown: bool) -> Iterator[None]:
    """The library's progress bars, only where something takes long."""
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled()
    if not shown:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            logging.enable_progress_bar()


def _require_hub(name: str) -> None:
    """One short question to the hub: transformers would retry for half a minute."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT)
    except Exception as error:
        # Which errors there are depends on the hub's HTTP library, and that changes.
        raise BadInput(
            f"{name} is not a local directory or .gguf file, not in the local cache, "
            f"and {constants.ENDPOINT} cannot be reached; `smollm2` needs no hub"
        ) from error
