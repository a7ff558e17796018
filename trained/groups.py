"""Groups of seeds, trained and put together: what failed costs its own seeds only."""

import shutil
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .arm import Arm
from .errors import BadInput, Incomplete, in_a_line
from .history import History
from .restoring import frozen_hash
from .state import read_checked
from .store import Run, concatenate
from .threads import threads
from .trainer import Engine, Observer, Trainer, weights_file

Plan = dict[str, Any]
"""How an arm's seeds are grouped, on how many threads, and what they are made of."""


class Trained(NamedTuple):
    """What remains of a group of seeds; its models are gone, which may be large."""

    folder: Path
    seeds: tuple[int, ...]
    history: History
    stopped_at: Tensor
    frozen: list[str]
    """For every seed the hash of what is not stored; empty if all is."""
    failed: dict[int, str]


def _train_group(trainer: Trainer) -> Trained:
    trainer.train()
    arm, models = trainer.arm, trainer.ensemble
    frozen = [
        frozen_hash(arm, {k: t[i] for k, t in models.parameters.items()})
        for i in range(models.size)
        if arm.stores == "trained"
    ]
    return Trained(
        trainer.folder,
        tuple(trainer.seeds),
        trainer.history,
        trainer.stopped_at,
        frozen,
        trainer.failed,
    )


def group_folder(folder: Path, index: int) -> Path:
    """Where a group of an arm is trained."""
    return folder / f"group-{index}"


def train_groups(
    arm: Arm, plan: Plan, engine: Engine, folder: Path, observer: Observer
) -> tuple[list[Trained], dict[int, Exception]]:
    """The groups that were trained, and what seeds failed with in some group.

    A group that fails, for whatever reason, costs its own seeds only.
    """
    trained: list[Trained] = []
    failed: dict[int, Exception] = {}
    with threads(plan["threads"]):
        for index, group in enumerate(plan["groups"]):
            place = group_folder(folder, index)
            try:
                done = _train_group(Trainer(arm, tuple(group), engine, place, observer))
            except BadInput:
                raise
            except Exception as error:
                # Its frames hold the models, which may be large.
                traceback.clear_frames(error.__traceback__)
                failed |= dict.fromkeys(group, error)
            else:
                trained.append(done)
                failed |= {seed: Incomplete(why) for seed, why in done.failed.items()}
    return trained, failed


Chosen = dict[int, tuple[Trained, int]]
"""Seed -> the group in which it was trained to the end, and its index there."""


def sound(trained: Sequence[Trained], seeds: Sequence[int]) -> Chosen:
    """Where each seed was trained to its end; the last try counts."""
    found = {
        seed: (group, index)
        for group in trained
        for index, seed in enumerate(group.seeds)
        if seed not in group.failed
    }
    return {seed: found[seed] for seed in seeds if seed in found}


def put_together(
    run: Run,
    arm: Arm,
    chosen: Chosen,
    plan: Plan,
    failed: Mapping[int, Exception],
    seconds: float,
) -> None:
    """Put the groups together along the seed axis, without the seeds that failed."""
    saved = sorted({*arm.save_steps, arm.steps})
    for step in saved:
        run.save_weights(arm.name, step, _joined_weights(chosen, step))
    columns = [_row(group.history.tensors(), i) for group, i in chosen.values()]
    first = next(iter(chosen.values()))[0]
    metrics = {**concatenate(columns), "step": torch.tensor(first.history.steps)}
    record = {
        "seeds": list(chosen),
        "saved_steps": saved,
        **{key: value for key, value in plan.items() if key != "groups"},
        "stopped_at": [g.stopped_at[i].tolist() for g, i in chosen.values()],
        "frozen": [g.frozen[i] for g, i in chosen.values() if g.frozen],
        "failed": {str(seed): in_a_line(error) for seed, error in failed.items()},
        "seconds": round(seconds, 3),
    }
    run.finish(arm.name, metrics, record)


def _joined_weights(chosen: Chosen, step: int) -> dict[str, Tensor]:
    weights: dict[Path, dict[str, Tensor]] = {}
    for group, _ in chosen.values():
        if group.folder not in weights:
            weights[group.folder] = _kept_weights(group.folder, step)
    return concatenate([_row(weights[g.folder], i) for g, i in chosen.values()])


def _kept_weights(folder: Path, step: int) -> dict[str, Tensor]:
    file = weights_file(folder, step)
    try:
        return read_checked(file)[0]
    except BadInput as error:
        if isinstance(error.__cause__, OSError) and file.exists():
            raise
        # Nothing else can bring them back; the state beside them is of no use alone.
        shutil.rmtree(folder)
        raise Incomplete(f"{error}, so its seeds have to be trained again") from error


def _row(tensors: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
    return {name: tensor[index : index + 1] for name, tensor in tensors.items()}
