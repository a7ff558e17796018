"""One owner at a time: a lock file that names the process that holds it.

The operating system holds the lock, not the file: when a process dies, in whatever
way, its lock is free and the next one takes it over.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import Busy

LOCK = ".lock"


@contextmanager
def owned(folder: Path, *, wait: float = 0.0, work: str = "training") -> Iterator[None]:
    """Own a directory for the length of the block.

    Args:
        folder: made if it does not exist.
        wait: seconds in which another owner may end; `Busy` if it does not.
        work: what an owner does, for those who have to wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK
    lock = FileLock(file, timeout=wait)
    try:
        lock.acquire()
    except Timeout as error:
        raise Busy(
            f"process {_holder(file)} is {work} {folder}; wait for it, or end it and "
            "repeat the command"
        ) from error
    try:
        file.write_text(f"{os.getpid()}\n")
        yield
    finally:
        # Still ours: whoever opened it meanwhile finds that it is gone, and tries anew.
        with suppress(OSError):
            file.unlink()
        lock.release()


def _holder(file: Path) -> str:
    try:
        return file.read_text().strip() or "of another kind"
    except OSError:
        return "of another kind"
