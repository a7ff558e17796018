"""Linear maps of float16 on a CPU, which has no fast kernels for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

FEW = 12
"""Positions up to which the CPU's own kernels are no slower."""


class Halves(TorchFunctionMode):
    """Within its block float16 maps of many positions are computed in float32.

    Their results are rounded to float16, as the CPU's kernels round theirs.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute a linear map of float16 in float32; anything else as it is."""
        if func is functional.linear and not kwargs and _slow(args[0]):
            exact = (None if part is None else part.float() for part in args)
            return func(*exact).half()
        return func(*args, **(kwargs or {}))


def _slow(inputs: Tensor) -> bool:
    rows = inputs.numel() // max(inputs.shape[-1], 1)
    return inputs.dtype == torch.float16 and inputs.device.type == "cpu" and rows > FEW
