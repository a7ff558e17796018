"""The training engine: stages, seeds as one program, metrics, checkpoints, resuming.

Nothing here knows a paper. An arm says what is trained; `train` runs the arms of a
run that are not done yet. What would falsify it: a run that is killed and resumed, or
seeds trained one by one, that end with other weights than one unbroken batched run.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from .arm import Arm
from .ensemble import leaves, rows, stack
from .errors import BadInput
from .store import Run, concatenate, read_json, read_tensors, write_json
from .trainer import Engine, History, Observer, Trainer, stacked_models, weights_file


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use this many threads inside the block.

    Small matrices gain nothing from a second thread, and on a busy machine the two
    wait for each other: seconds can become minutes.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


DISPATCH_BOUND = 6e6
"""Floating-point operations of one seed's forward pass on a CPU below which a step
spends its time on dispatch, so that stacking seeds pays (scripts/bench_seeds.py). A
number of the request, not a stopwatch: the same request has the same bits."""


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
    _require_base(run, arm, model, index)
    try:
        if set(weights) != _stored_names(arm, model):
            raise IndexError("other names")
        own = {name: tensor[index] for name, tensor in weights.items()}
        # Tied parameters are stored once, under the first of their names.
        model.load_state_dict(own, strict=False)
    except (RuntimeError, IndexError) as error:
        raise BadInput(
            f"{run.path}/{arm.name} holds another model's weights"
        ) from error
    return model.eval()


def _require_base(run: Run, arm: Arm, model: nn.Module, index: int) -> None:
    """What is not stored must be what it was in training."""
    if arm.stores == "everything":
        return
    found = _frozen_hash(arm, dict(model.named_parameters()))
    if found != run.record(arm.name)["frozen"][index]:
        raise BadInput(
            f"{run.path}/{arm.name} was trained from another model: parameters that "
            "are not stored with it differ"
        )


def _frozen_hash(arm: Arm, parameters: Mapping[str, Tensor]) -> str:
    """A hash of the first values of every parameter that is not stored."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(parameters):
        if not arm.is_stored(name):
            sample = parameters[name].detach().flatten()[:256]
            digest.update(sample.float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _stored_names(arm: Arm, model: nn.Module) -> set[str]:
    names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    return {name for name in names & set(model.state_dict()) if arm.is_stored(name)}


class _Trained(NamedTuple):
    """What remains of a group of seeds; its models are gone, which may be large."""

    folder: Path
    history: History
    stopped_at: Tensor
    frozen: list[str]
    """For every seed the hash of what is not stored; empty if all is."""


def _train_group(trainer: Trainer) -> _Trained:
    trainer.train()
    arm, models = trainer.arm, trainer.ensemble
    frozen = [
        _frozen_hash(arm, {k: t[i] for k, t in models.parameters.items()})
        for i in range(models.size)
        if arm.stores == "trained"
    ]
    return _Trained(trainer.folder, trainer.history, trainer.stopped_at, frozen)


def _train_arm(run: Run, arm: Arm, engine: Engine, observer: Observer) -> None:
    started = time.perf_counter()
    seeds = arm.seeds(run.seeds)
    observer.on_arm(arm, seeds)
    folder = run.path / arm.name
    plan = _plan(arm, seeds, engine, folder)
    stacked = plan["batching"] == "vmap"
    groups = [seeds] if stacked else [(seed,) for seed in seeds]
    with threads(plan["threads"]):
        trained = [
            _train_group(
                Trainer(arm, group, engine, folder / f"group-{index}", observer)
            )
            for index, group in enumerate(groups)
        ]
    saved = sorted({*arm.save_steps, arm.steps})
    for step in saved:
        parts = [read_tensors(weights_file(t.folder, step))[0] for t in trained]
        run.save_weights(arm.name, step, concatenate(parts))
    metrics = concatenate([t.history.tensors() for t in trained])
    metrics["step"] = torch.tensor(trained[0].history.steps)
    seconds = round(time.perf_counter() - started, 3)
    record = {
        "seeds": list(seeds),
        "saved_steps": saved,
        **plan,
        "data_hash": _data_hash(arm, seeds),
        "stopped_at": [s for t in trained for s in t.stopped_at.tolist()],
        "frozen": [text for t in trained for text in t.frozen],
        "seconds": seconds,
    }
    run.finish(arm.name, metrics, record)
    observer.on_finish(arm, seconds)


def _plan(
    arm: Arm, seeds: tuple[int, ...], engine: Engine, folder: Path
) -> dict[str, Any]:
    """How the seeds are batched and on how many threads, settled before the first step.

    Both change bits, so they follow from the request alone and a resumed arm obeys what
    is stored.
    """
    file = folder / "plan.json"
    if not file.exists():
        batching = engine.batching if arm.stackable else "loop"
        if batching == "auto":
            stacked = _is_dispatch_bound(arm, seeds[0], engine)
            batching = "vmap" if stacked else "loop"
        write_json(file, {"batching": batching, "threads": arm.threads})
    return read_json(file)


def _is_dispatch_bound(arm: Arm, seed: int, engine: Engine) -> bool:
    """Whether one seed's step is so small that stacking the seeds pays."""
    if not engine.device.startswith("cpu"):
        return True
    ensemble = stacked_models(arm, (seed,), engine.device)
    stage = arm.stages[0]
    data = stack([stage.data(seed, 0)])
    if stage.batch_size is not None:
        data = rows(data, torch.arange(stage.batch_size)[None])
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        ensemble.values(stage.loss, data)
    return counted.get_total_flops() < DISPATCH_BOUND


def _data_hash(arm: Arm, seeds: Sequence[int]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for stage in arm.stages:
        for seed in seeds:
            for leaf in leaves(stage.data(seed, 0)):
                digest.update(leaf.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()
