"""A request that needs more memory than there is fails in one line, not by a kill."""

import resource

from trained.memory import kilobytes

SPARED = 256 * 2**20
"""Bytes left to the rest of the machine."""


def limit_memory() -> None:
    """Let this process and its workers allocate what is free now, and no more.

    Linux promises memory that it does not have and kills whoever uses it. With a limit
    the allocation itself fails, is named, and costs one arm. Where the operating system
    does not say what is free, nothing is limited.
    """
    free = kilobytes("/proc/meminfo", "MemAvailable")
    used = kilobytes("/proc/self/status", "VmData")
    if free is None or used is None:
        return
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = (free + used) * 1024 - SPARED
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    if most > used * 1024:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
