"""A model that wears other weights for a while: random ones, or fine-tuned ones.

There is never a second copy beside it: what it had waits on disk (in the host's memory,
where the model is on an accelerator) and is put back bit by bit.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from .language_model import LanguageModel, behind


@contextmanager
def borrowed(parameters: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Let parameters be changed in the block; afterwards they are what they were."""
    near = {k: p for k, p in parameters.items() if p.device.type == "cpu"}
    far = {k: p.detach().cpu() for k, p in parameters.items() if k not in near}
    with tempfile.TemporaryDirectory(prefix="reasonscope-") as folder:
        file = Path(folder) / "weights.safetensors"
        save_file({k: p.detach().contiguous() for k, p in near.items()}, file)
        try:
            yield
        finally:
            with torch.no_grad(), safe_open(file, "pt") as stored:
                for name, parameter in parameters.items():
                    own = far[name] if name in far else stored.get_tensor(name)
                    parameter.copy_(own)
                    parameter.grad = None
                    parameter.requires_grad_(False)


@contextmanager
def reinitialised(model: LanguageModel, seed: int) -> Iterator[None]:
    """Let a model have random weights in the block, as before any training.

    The initialisation is the one that the model's own configuration states.
    """
    _, hf = behind(model.module)
    with borrowed(dict(hf.named_parameters())):
        draw_weights(hf, seed)
        yield


def draw_weights(hf: Any, seed: int) -> None:
    """Fill a transformers model with random weights, in place."""
    marked: list[nn.Module | Tensor] = [*hf.modules(), *hf.parameters()]
    for one in marked:
        # What was loaded is marked, and would be left as it is.
        vars(one).pop("_is_hf_initialized", None)
    # Named, as torch would warn of the others on a machine with several.
    places = {p.device for p in hf.parameters() if p.device.type != "cpu"}
    with torch.random.fork_rng(places), torch.no_grad():
        torch.manual_seed(seed)
        hf.init_weights()
