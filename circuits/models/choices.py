"""How a language model may be opened, by names. Free of torch."""

from trained.device import check_device
from trained.errors import unknown

BACKENDS = ("hf", "bridge", "nnsight")
DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""Types of weights, and their short names."""
SPREAD = "spread"
"""The device that is all of them: layers are spread by accelerate."""


def full_dtype(name: str) -> str:
    """The type of weights that a name stands for, short or not."""
    for full, short in DTYPES.items():
        if name in (full, short):
            return full
    raise unknown("dtype", name, (*DTYPES, *DTYPES.values()))


def check_backend(name: str) -> None:
    """Refuse what is no backend."""
    if name not in BACKENDS:
        raise unknown("backend", name, BACKENDS)


def check_place(device: str) -> None:
    """Refuse what is no device; whether it is here, torch knows."""
    if device != SPREAD:
        check_device(device)
