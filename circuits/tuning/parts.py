"""Which numbers of a model are trained: its own in place, or those of adapters."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from circuits.models.borrowed import borrowed
from trained.errors import BadInput

from .resumed import block_list, last_blocks
from .settings import Tuning


class Trainable(NamedTuple):
    """What is trained of a model.

    Attributes:
        parameters: by name.
        save: folder -> what was trained, stored there as transformers and peft do.
    """

    parameters: dict[str, nn.Parameter]
    save: Callable[[Path], Any]


@contextmanager
def trainable(hf: Any, tuning: Tuning, seed: int) -> Iterator[Trainable]:
    """What is to be trained of a transformers model.

    After the block the model is what it was before. `BadInput` for float16, whose range
    is too small for gradients.
    """
    if tuning.rank is not None:
        with adapted(hf, tuning.rank, seed) as wrapped:
            chosen = {k: p for k, p in hf.named_parameters() if p.requires_grad}
            yield Trainable(chosen, wrapped.save_pretrained)
        return
    chosen = dict(hf.named_parameters())
    if tuning.last is not None:
        starts = last_blocks(hf, tuning.last)
        chosen = {k: p for k, p in chosen.items() if k.startswith(starts)}
    if any(p.dtype == torch.float16 for p in chosen.values()):
        raise BadInput("float16 cannot be fine-tuned; open the model in bfloat16")
    with borrowed(chosen):
        for parameter in chosen.values():
            parameter.requires_grad_()
        yield Trainable(chosen, hf.save_pretrained)


@contextmanager
def adapted(hf: nn.Module, rank: int, seed: int) -> Iterator[Any]:
    """Give every linear map but the unembedding an adapter (Hu et al. 2021).

    W x + (2 / 1) B A x with A and B of the given rank, B = 0 at first.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise BadInput("layers=lora:R needs peft: pip install peft") from None
    wanted = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        wrapped = get_peft_model(hf, wanted)
    try:
        yield wrapped
    finally:
        wrapped.unload().requires_grad_(False)


@contextmanager
def checkpointed(hf: nn.Module, n_frozen: int = 0) -> Iterator[None]:
    """Compute every block again in the backward pass (Chen et al. 2016).

    Of each block only the input is kept. The model stays in evaluation mode, without
    dropout, in which transformers' own checkpointing is off.

    Args:
        hf: the model.
        n_frozen: blocks at the beginning that are not run at all.
    """
    with ExitStack() as stack:
        for block in list(block_list(hf)[1])[n_frozen:]:
            whole = block.forward
            block.forward = partial(checkpoint, whole, use_reentrant=False)
            stack.callback(delattr, block, "forward")
        yield
