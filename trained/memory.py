"""How much memory is left: what is too large is refused before it is begun."""

import re
import resource
from pathlib import Path


def free_bytes(device: str = "cpu") -> int | None:
    """Bytes that this process can still allocate; None where nobody says.

    Args:
        device: where: the machine's own memory, or that of a CUDA device.
    """
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    free = kilobytes("/proc/meminfo", "MemAvailable")
    used = kilobytes("/proc/self/status", "VmData")
    if device != "cpu" or free is None or used is None:
        return None
    limit, _hard = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return free * 1024
    return min(free * 1024, limit - used * 1024)


def kilobytes(file: str, name: str) -> int | None:
    """A value of `/proc`, where there is one."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(file).read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
