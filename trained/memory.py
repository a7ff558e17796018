"""Memory: how much is left, so that too much is refused; what was freed is kept."""

import ctypes
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


def keep_freed_memory() -> bool:
    """Let this process use the memory it freed again, without returning it between.

    A step of training frees and asks for the same megabytes. By default glibc gives
    each block above 32 MB back to the system, which must then fill the next one with
    zeros page by page: a third of the time of training LEGO's small models. The peak
    stays the same; what was the peak once is held until the process ends.

    Returns:
        Whether the allocator could be told; elsewhere than on glibc nothing changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Their numbers in glibc's `malloc.h`."""
