"""Where to compute: one meaning of `--device` for everything."""

import torch

from .errors import BadInput, unknown

VALID = "auto, cpu, cuda, cuda:N, mps"


def device_named(name: str) -> str:
    """The device that a name means here; `BadInput` if it is not present.

    `auto` is CUDA where there is some, else the CPU: mps lacks the float64 that the
    theory parts compute in, so it is only taken by name.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, VALID) from None
    present = {
        "cpu": True,
        "cuda": (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if device.type not in present:
        raise unknown("device", name, VALID)
    if not present[device.type]:
        raise BadInput(f"device '{name}' is not present on this machine; use cpu")
    return name
