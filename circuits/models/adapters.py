"""PEFT adapters: a few trained weights beside a model, merged into it or attached."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from trained.errors import BadInput, in_a_line

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def base_of(folder: Path) -> str | None:
    """The model that an adapter's folder says it is for; None if it is no adapter."""
    file = folder / CONFIG
    if not file.is_file():
        return None
    try:
        base = json.loads(file.read_text())["base_model_name_or_path"]
    except (ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{file} is not an adapter's: {in_a_line(error)}") from None
    if not isinstance(base, str) or not base:
        raise BadInput(f"{file} names no base model: open that, with adapter={folder}")
    return base


def require_adapter(folder: Path) -> None:
    """`BadInput` unless a folder holds what an adapter needs, before a model is read.

    Weights are taken from safetensors alone: older adapters hold pickles, which can run
    code.
    """
    if find_spec("peft") is None:
        raise BadInput("adapters need the package peft: pip install reasonscope[peft]")
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise BadInput(f"{folder} is no adapter: it has no {name}")


def adapted(hf: Any, folder: Path, *, merged: bool) -> Any:
    """A transformers model with an adapter, in eval mode and without gradients.

    Args:
        hf: the model, which is changed.
        folder: the adapter's, as peft's `save_pretrained` writes it.
        merged: whether the weights are added to the model's own, which costs nothing
            afterwards; else they stay beside them, as they were trained.
    """
    from peft import PeftModel

    try:
        # As the model computes: an adapter is small, and so is its round-off.
        whole = PeftModel.from_pretrained(
            hf, str(folder), local_files_only=True, autocast_adapter_dtype=False
        )
        whole = whole.to(hf.dtype)
        found = whole.merge_and_unload() if merged else whole.get_base_model()
    except (ValueError, KeyError, RuntimeError, TypeError, SafetensorError) as error:
        raise BadInput(
            f"{folder} does not fit the model: {in_a_line(error)}"
        ) from error
    return found.eval().requires_grad_(False)
