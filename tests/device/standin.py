"""An accelerator that is none: tensors of another device that compute on the CPU.

It is as strict as CUDA: a CPU tensor with axes that meets one of these in an operation
is an error, and so is reading one as numpy. Every copy to the host is counted.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NAME = "standin"
aten = torch.ops.aten

COPIES: Counter[str] = Counter()
"""Operation -> how often it brought something to the host."""

_TRANSFERS = (aten._to_copy.default, aten.copy_.default)
_INDEXED = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)


class StandIn(Tensor):
    """What is on the device; `raw` is where it really is."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> "StandIn":
        found: StandIn = Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device(NAME, 0),
        )
        found.raw = raw
        return found

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        _require_one_device(func, args)
        out = _computed(func, args, kwargs)
        if func is aten._to_copy.default and not _here(kwargs, args[0]):
            return out
        return return_and_correct_aliasing(func, args, kwargs, out)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        del tensor_contents
        return f"StandIn({self.raw!r})"

    def tolist(self) -> Any:
        """As CUDA's: a copy to the host."""
        COPIES["tolist"] += 1
        return self.raw.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Refused, as CUDA's is."""
        del force
        raise TypeError(f"can't convert {NAME} device type tensor to numpy")


def _require_one_device(func: Any, args: Any) -> None:
    """Only a transfer, an index or a number may come from the host."""
    if func in _TRANSFERS:
        return
    given = args[:1] + args[2:] if func in _INDEXED else args
    for value in tree_flatten(given)[0]:
        if isinstance(value, Tensor) and not isinstance(value, StandIn) and value.ndim:
            raise RuntimeError(
                f"{func}: expected all tensors on one device, found {NAME} and "
                f"{value.device} ({tuple(value.shape)})"
            )


def _here(kwargs: dict[str, Any], like: Any) -> bool:
    """Whether the result of a factory belongs on this device."""
    device = kwargs.get("device")
    if device is None:
        return isinstance(like, StandIn)
    return torch.device(device).type == NAME


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What the CPU gives, back on the device; what was changed in place is itself."""
    flat, spec = tree_flatten((args, kwargs))
    known = {id(value.raw): value for value in flat if isinstance(value, StandIn)}
    raw_args, raw_kwargs = tree_unflatten(
        [value.raw if isinstance(value, StandIn) else value for value in flat], spec
    )
    stays = _here(kwargs, args[0] if args else None) or "device" not in kwargs
    if "device" in raw_kwargs:
        raw_kwargs["device"] = torch.device("cpu")
    if func is aten._local_scalar_dense.default or not stays:
        COPIES[str(func)] += 1
    if func is aten.copy_.default and not isinstance(args[0], StandIn):
        COPIES[str(func)] += 1
        stays = False
    out = func(*raw_args, **raw_kwargs)

    def wrapped(value: Any) -> Any:
        if not isinstance(value, Tensor) or not stays:
            return value
        return known.get(id(value)) if id(value) in known else StandIn(value)

    if func is aten.copy_.default and not stays:
        return args[0]
    return tree_map(wrapped, out)


def _factory(func: Any, *args: Any, **kwargs: Any) -> Any:
    """What makes a tensor from none: `torch.zeros(3, device="standin")`."""
    return _computed(func, args, {"device": torch.device(NAME), **kwargs})


_SIZED_LATE = (torch.tensor, torch.as_tensor, torch.arange)
"""They ask for memory before its size is known, which Python cannot give."""


class _Made(TorchFunctionMode):
    """Makes on the CPU what cannot be made on the device, and moves it there."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        if func in _SIZED_LATE and _here(kwargs, None):
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        if func is Tensor.new_tensor and isinstance(args[0], StandIn):
            made = args[0].raw.new_tensor(*args[1:], **kwargs)
            return made.to(args[0].device)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            args = (args[0], _index(args[1]), *args[2:])
        return func(*args, **kwargs)


def _index(index: Any) -> Any:
    """Lists in an index as tensors."""
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    if not isinstance(index, list):
        return index
    return torch.tensor(index) if index else torch.empty(0, dtype=torch.long)


@contextmanager
def device() -> Iterator[torch.device]:
    """The device, for the length of the block."""
    COPIES.clear()
    with _Made():
        yield torch.device(NAME, 0)


backend_registration._setup_privateuseone_for_python_backend(NAME)
_MODULE = torch.get_device_module(NAME)
_MODULE.get_rng_state = lambda _device: torch.get_rng_state()
_MODULE.set_rng_state = lambda state, _device: torch.set_rng_state(state)
_LIBRARY = torch.library.Library("_", "IMPL")
_LIBRARY.fallback(_factory, "PrivateUse1")
