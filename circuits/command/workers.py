"""Arms trained side by side in processes of one machine.

A worker is told where the run is and which arm to train; it finds the rest in the
manifest. Small models gain more from a process per core than from threads.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from circuits.study import find
from trained.arm import Arm
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import train


def train_in_processes(
    run: Run, arms: Sequence[Arm], *, jobs: int, observer: Observer
) -> None:
    """Train the arms, `jobs` at a time; each is stored as it is done."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ProcessPoolExecutor(
        min(jobs, len(arms)), get_context("spawn"), _set_threads, (threads,)
    )
    with pool:
        waiting = {pool.submit(_train_arm, run.path, arm.name): arm for arm in arms}
        try:
            for future in as_completed(waiting):
                future.result()
                arm = waiting[future]
                observer.on_finish(arm, run.record(arm.name)["seconds"])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _set_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def _train_arm(path: Path, name: str) -> None:
    run = Run.open(path)
    study = find(run.study)
    config = study.config(run.manifest["config"])
    arms = [arm for arm in study.arms(config) if arm.name == name]
    train(run, arms, engine=Engine(device=run.manifest["device"]))
