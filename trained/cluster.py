"""The executor of a Ray cluster: the same tasks, on one machine or many.

Every node needs reasonscope and sees the directory of the runs under the same path (a
shared file system). A task whose worker or node is lost is tried again on another; it
takes up what the lost one had stored, and its locks are free with it, so that nothing
is done twice or written by two. Needs the extra `ray`.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .errors import BadInput, Lost, in_a_line
from .workers import Result, Task, tried

RETRIES = 3
"""How often a task is tried again whose worker or node was lost."""


@dataclass(frozen=True)
class Cluster:
    """An `Executor` by Ray.

    Attributes:
        address: of a running cluster, `auto` for the one that this machine belongs to;
            None starts one on this machine, for the time of the work.
        cpus: cores of a task; a fraction is allowed.
        gpus: GPUs of a task; a fraction lets several share one.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.cpus < float("inf") or not 0 <= self.gpus < float("inf"):
            raise BadInput(
                f"a task of {self.cpus:g} cores and {self.gpus:g} GPUs: give more than "
                "0 cores, and 0 GPUs or more"
            )

    def __call__(
        self,
        work: Callable[[Task], object],
        tasks: Iterable[Task],
        done: Callable[[Task, Result], Iterable[Task]],
    ) -> None:
        """Do every task somewhere in the cluster; see `Executor`."""
        with self._connected() as ray:
            remote = ray.remote(_tried_alone).options(
                num_cpus=self.cpus, num_gpus=self.gpus, max_retries=RETRIES
            )
            running = {remote.remote(work, task): task for task in tasks}
            try:
                while running:
                    (ready, *_), _ = ray.wait(list(running), num_returns=1)
                    task = running.pop(ready)
                    for following in done(task, _outcome(ray, ready)):
                        running[remote.remote(work, following)] = following
            finally:
                for left in running:
                    ray.cancel(left, force=True)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Ray itself, connected; what was started here ends here."""
        try:
            import ray
        except ImportError as error:
            raise BadInput(
                "--executor ray needs ray: pip install 'reasonscope[ray]'"
            ) from error
        if ray.is_initialized():
            yield ray
            return
        try:
            _require_reachable(self.address)
            ray.init(
                address=self.address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=None if self.address else False,
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise BadInput(
                f"no Ray cluster at '{self.address}': {in_a_line(error)}"
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()


def _require_reachable(address: str | None) -> None:
    """Ray itself asks for minutes before it gives up."""
    if address and ":" in address and "//" not in address:
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), REACHED_SECONDS).close()


REACHED_SECONDS = 5.0


def _tried_alone(work: Callable[[Any], object], task: Any) -> Result:
    """One task in a worker of Ray, on one thread like everywhere."""
    import torch

    torch.set_num_threads(1)
    return tried(work, task)


def _outcome(ray: Any, ready: Any) -> Result:
    try:
        found: Result = ray.get(ready)
    except ray.exceptions.RayError as error:
        return Result(error=Lost(f"its worker was lost: {in_a_line(error)}"))
    return found
