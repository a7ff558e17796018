"""The training engine: stages, seeds as one program, metrics, checkpoints, resuming.

Nothing here knows a paper. An arm says what is trained; `train` runs the arms of a
run that are not done yet. What would falsify it: a run that is killed and resumed, or
seeds trained one by one, that end with other weights than one unbroken batched run.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

from .arm import Arm
from .ensemble import leaves, stack
from .errors import BadInput
from .store import Run, concatenate, read_tensors
from .threads import threads
from .trainer import Engine, Observer, Trainer, stacked_models

OVERHEAD_BOUND_SECONDS = 0.003
"""A step shorter than this spends its time on dispatch, so stacking seeds pays
(measured by scripts/bench_seeds.py; about d <= 32 on a CPU)."""


def train(
    run: Run, arms: Iterable[Arm], *, engine: Engine, observer: Observer | None = None
) -> None:
    """Train the arms of a run that are not finished yet and store each one."""
    for arm in arms:
        if not run.is_done(arm.name):
            _train_arm(run, arm, engine, observer or Observer())


def restore(run: Run, arm: Arm, seed: int, *, step: int | None = None) -> nn.Module:
    """The model of one seed at a saved step (default: the last), in eval mode."""
    seeds = run.record(arm.name)["seeds"]
    if seed not in seeds:
        raise BadInput(f"arm {arm.name} has no seed {seed}; it has {seeds}")
    index = seeds.index(seed)
    weights = run.weights(arm.name, step)
    model = arm.build(seed)
    try:
        model.load_state_dict({name: t[index] for name, t in weights.items()})
    except (RuntimeError, IndexError) as error:
        raise BadInput(
            f"{run.path}/{arm.name} holds another model's weights"
        ) from error
    return model.eval()


def _train_arm(run: Run, arm: Arm, engine: Engine, observer: Observer) -> None:
    started = time.perf_counter()
    seeds = arm.seeds(run.seeds)
    observer.on_arm(arm, seeds)
    folder = run.path / arm.name
    groups = _groups(arm, seeds, engine, folder)
    trainers = [
        Trainer(arm, group, engine, folder / f"group-{index}", observer)
        for index, group in enumerate(groups)
    ]
    # Stacked seeds are dispatch-bound.
    with threads(1 if len(groups) < len(seeds) else torch.get_num_threads()):
        for trainer in trainers:
            trainer.train()
    saved = sorted({*arm.save_steps, arm.steps})
    for step in saved:
        parts = [read_tensors(t.weights_file(step))[0] for t in trainers]
        run.save_weights(arm.name, step, concatenate(parts))
    metrics = concatenate([t.history.tensors() for t in trainers])
    metrics["step"] = torch.tensor(trainers[0].history.steps)
    seconds = round(time.perf_counter() - started, 3)
    record = {
        "seeds": list(seeds),
        "saved_steps": saved,
        "batching": "vmap" if len(groups) < len(seeds) else "loop",
        "data_hash": _data_hash(arm, seeds),
        "stopped_at": [s for t in trainers for s in t.stopped_at.tolist()],
        "seconds": seconds,
    }
    run.finish(arm.name, metrics, record)
    observer.on_finish(arm, seconds)


def _groups(
    arm: Arm, seeds: tuple[int, ...], engine: Engine, folder: Path
) -> list[tuple[int, ...]]:
    """All seeds in one group, or one group each; a resumed arm keeps its choice."""
    choice = engine.batching
    existing = len(list(folder.glob("group-*")))
    if existing:
        choice = "loop" if existing > 1 else "vmap"
    elif choice == "auto":
        choice = "vmap" if _is_overhead_bound(arm, seeds[0], engine) else "loop"
    groups = [seeds]
    if choice == "loop":
        groups = [(seed,) for seed in seeds]
    for index in range(len(groups)):
        (folder / f"group-{index}").mkdir(parents=True, exist_ok=True)
    return groups


def _is_overhead_bound(arm: Arm, seed: int, engine: Engine) -> bool:
    """Whether one seed's step is so short that stacking the seeds pays."""
    if engine.device.startswith("cuda"):
        return True
    ensemble = stacked_models(arm, (seed,), engine.device)
    stage = arm.stages[0]
    data = stack([stage.data(seed, 0)])
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        torch.autograd.backward(ensemble.values(stage.loss, data).sum())
        best = min(best, time.perf_counter() - started)
    return best < OVERHEAD_BOUND_SECONDS


def _data_hash(arm: Arm, seeds: Sequence[int]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for stage in arm.stages:
        for seed in seeds:
            for leaf in leaves(stage.data(seed, 0)):
                digest.update(leaf.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()
