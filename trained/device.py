"""Where to compute: one meaning of `--device` for everything."""

from .errors import BadInput, unknown

DEVICES = ("auto", "cpu", "cuda", "mps")


def check_device(name: str) -> None:
    """Refuse a name that is no device anywhere, without asking torch."""
    kind, _, index = name.partition(":")
    fits = kind in DEVICES and (not index or (kind == "cuda" and index.isdecimal()))
    if not fits:
        raise unknown("device", name, "auto, cpu, cuda, cuda:N, mps")


def device_named(name: str) -> str:
    """The device that a name means here; `BadInput` if it is not present.

    `auto` is CUDA where there is some, else the CPU: mps lacks the float64 that the
    theory parts compute in, so it is only taken by name.
    """
    import torch

    check_device(name)
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    present = {
        "cpu": True,
        "cuda": (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not present[device.type]:
        raise BadInput(f"device '{name}' is not present on this machine; use cpu")
    return name
