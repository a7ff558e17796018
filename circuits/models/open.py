"""Open a pretrained language model for observation, from wherever it is.

`open("smollm2")` gives a `LanguageModel` behind any backend.
"""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from circuits.progress import step
from trained.device import device_named

from .adapters import adapted, base_of, require_adapter
from .choices import SPREAD, check_backend, full_dtype
from .contract import check_model
from .files import Loading, load
from .language_model import LanguageModel, from_bridge, from_hf, run_hf
from .language_model import behind as behind


def open(
    name_or_path: str | Path,
    *,
    backend: str = "hf",
    device: str = "auto",
    dtype: str | torch.dtype = "float32",
    adapter: str | Path | None = None,
    merged: bool = True,
) -> LanguageModel:
    """Open a language model, in eval mode and without gradients.

    The laws of `check_model` are tried on it first: a backend that silently does
    nothing is an error here, not a result later.

    Args:
        name_or_path: `smollm2`, a directory that `save_pretrained` wrote, a GGUF
            file, or a name on the Hugging Face hub (local files are preferred), of
            some revision as `name@revision`; or the folder of a PEFT adapter, which
            names its model.
        backend: `hf` hooks the model as it is and keeps its fast attention; `bridge`
            is TransformerLens' TransformerBridge; `nnsight` traces it.
        device: as for everything (`device_named`); and `spread` puts layers on all
            devices, by accelerate.
        dtype: the type of the weights; signals are computed in single precision.
        adapter: the folder of a PEFT adapter for the model.
        merged: whether the adapter is added to the weights, or stays beside them.
    """
    check_backend(backend)
    precision = dtype_named(dtype)
    place = device if device == SPREAD else device_named(device)
    how = Loading(precision, place, families=backend != "bridge")
    name = str(name_or_path)
    if adapter is None and (base := base_of(Path(name).expanduser())) is not None:
        name, adapter = base, name
    if adapter is not None:
        require_adapter(Path(adapter).expanduser())
    with step(f"opening {name}"):
        hf, tokenizer = load(name, how)
        if adapter is not None:
            hf = adapted(hf, Path(adapter).expanduser(), merged=merged)
            name = f"{name} with {Path(adapter).name}"
        model = opened(name, hf, tokenizer, backend)
        check_model(model)
    return model


def wrap(
    hf: Any, tokenizer: Any, *, backend: str = "hf", name: str = "model"
) -> LanguageModel:
    """A transformers model in memory, opened as `open` would.

    `bridge` and `nnsight` work on a copy: they would rebuild the caller's model.
    """
    check_backend(backend)
    if backend != "hf":
        hf = copy.deepcopy(hf)
    return opened(name, hf, tokenizer, backend)


def random_twin(model: LanguageModel, seed: int) -> LanguageModel:
    """The same architecture and tokenizer with weights as before any training.

    The null for every number measured on a pretrained model. The weights follow the
    initialisation that the model's own configuration states.
    """
    from transformers import AutoModelForCausalLM

    backend, hf = behind(model.module)
    parameter = next(hf.parameters())
    config = copy.deepcopy(hf.config)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        twin = AutoModelForCausalLM.from_config(config, dtype=parameter.dtype)
    name = f"{model.name}, random weights {seed}"
    twin = twin.eval().requires_grad_(False).to(parameter.device)
    return opened(name, twin, model.tokenizer, backend)


def dtype_named(dtype: str | torch.dtype) -> torch.dtype:
    """The type of weights that a name stands for."""
    if isinstance(dtype, torch.dtype):
        return dtype
    found: torch.dtype = getattr(torch, full_dtype(dtype))
    return found


def opened(name: str, hf: Any, tokenizer: Any, backend: str) -> LanguageModel:
    """The model behind its backend, which may rebuild `hf`."""
    if backend == "bridge":
        return from_bridge(_bridge(hf), tokenizer, name)
    model = from_hf(hf, tokenizer, name)
    if backend == "nnsight":
        from circuits.backends.nnsight import Traced

        traced = Traced(hf)
        return replace(model, module=traced, run=run_hf(traced), growing=None)
    return model


def _bridge(hf: Any) -> Any:
    # The public way in would ask the hub for a tokenizer.
    from transformer_lens.model_bridge.sources._bridge_builder import (
        build_bridge_from_module,
    )

    architecture = type(hf).__name__
    return build_bridge_from_module(hf, architecture, hf_config=hf.config).eval()
