"""The training engine: stages, seeds as one program, metrics, checkpoints, resuming.

Nothing here knows a paper. An arm says what is trained; `train` runs the arms of a
run that are not done yet. What would falsify it: a run that is killed and resumed, or
seeds trained one by one, that end with other weights than one unbroken batched run.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .arm import Arm
from .ensemble import leaves, rows, stack
from .errors import BadInput, Incomplete, in_a_line
from .files import sweep
from .fingerprint import fingerprint
from .groups import Plan, group_folder, put_together, sound, train_groups
from .lock import owned
from .restoring import restore as restore
from .schema import check_plan
from .store import Run, read_json, write_json
from .threads import threads
from .trainer import Engine, Observer, Trainer, stacked_models

DISPATCH_BOUND = 130_000
"""Bytes that a call into torch gives, mean over one seed's forward pass on a CPU, below
which calls themselves cost enough that stacking seeds pays. Above it the tensors of
several seeds leave a core's own cache: with three seeds, of 30 arms of the studies on
two busy cores, stacking takes 0.7 to 1.3 of a loop's time below the bound, 0.9 to 2.6
above it (scripts/bench_seeds.py compares both for ten). A number of the request, not a
stopwatch: the same request has the same bits."""

STOPPING_BOUND = 80_000
"""The same where seeds stop one by one: in a stack they cost until the last has."""


def train(
    run: Run, arms: Iterable[Arm], *, engine: Engine, observer: Observer | None = None
) -> None:
    """Train the arms of a run that are not finished yet and store each one.

    What fails costs its seed or its arm only: the others go on, and at the end
    `Incomplete` names it. Training the run again takes it up. `BadInput` if an arm is
    there already, but was trained on other data, from another model, with another
    optimiser or by other code; `Busy` if another process trains the run.
    """
    observer, failures, left = observer or Observer(), Failures(), []
    for arm in arms:
        if run.is_done(arm.name):
            require_whole(run, arm)
            made_of = fingerprint(arm, arm.seeds(run.seeds))
            _require_same(run.folder(arm.name), run.record(arm.name), made_of)
        else:
            left.append(arm)
    if not left:
        return
    with owned(run.path):
        sweep(run.path, LITTER_AGE)
        for arm in left:
            try:
                train_arm(run, arm, engine=engine, observer=observer)
            except Exception as error:
                failures.add(arm.name, error)
                observer.on_failure(arm, error)
    failures.complain(run.path)


def require_whole(run: Run, arm: Arm) -> None:
    """Refuse a finished arm that is not as it was written, or not this arm."""
    run.verify(arm.name, arm.seeds(run.seeds))
    restore(run, arm, arm.seeds(run.seeds)[0])


LITTER_AGE = 3600.0
"""Seconds after which an unfinished file in a run is taken for abandoned."""


class Failures:
    """What went wrong with which arm, to be told once everything else is done."""

    def __init__(self) -> None:
        self._errors: dict[str, Exception] = {}

    def add(self, arm: str, error: Exception) -> None:
        """Remember that an arm failed."""
        self._errors[arm] = error

    def has(self, arm: str) -> bool:
        """Whether it failed."""
        return arm in self._errors

    def complain(self, path: Path) -> None:
        """Raise what was remembered: what the user can mend as it is."""
        for error in self._errors.values():
            if isinstance(error, BadInput):
                raise error
        if self._errors:
            said = [f"{arm}: {in_a_line(e)}" for arm, e in self._errors.items()]
            raise Incomplete(
                f"not trained: {'; '.join(said)} (what else was trained is kept in "
                f"{path}; repeat to take these up again)"
            ) from next(iter(self._errors.values()))


def begin_arm(run: Run, arm: Arm, *, engine: Engine) -> int:
    """Settle how an arm's seeds are grouped; how many groups there are to train."""
    folder = run.folder(arm.name)
    with owned(folder, wait=ORPHAN_SECONDS):
        sweep(folder)
        return len(_plan(run, arm, engine)["groups"])


def train_group(run: Run, arm: Arm, index: int, *, engine: Engine) -> float:
    """Train one group of an arm that was begun, for `train_arm` to put together.

    Groups may be trained at the same time, in different processes.

    Returns:
        The seconds it took.
    """
    started = time.perf_counter()
    file = run.folder(arm.name) / "plan.json"
    plan, place = read_json(file), group_folder(file.parent, index)
    check_plan(file, plan, arm.seeds(run.seeds))
    group = tuple(plan["groups"][index])
    with owned(place, wait=ORPHAN_SECONDS), threads(plan["threads"]):
        Trainer(arm, group, engine, place, Observer()).train()
    return time.perf_counter() - started


def train_arm(
    run: Run, arm: Arm, *, engine: Engine, observer: Observer, spent: float = 0.0
) -> None:
    """Train one arm, or what is left of it, and store it.

    Whoever calls this owns the run (see `owned`) or was started by its owner.

    Args:
        run: where it is stored.
        arm: what is trained.
        engine: how.
        observer: what is told of it.
        spent: seconds that groups of it have already taken elsewhere.

    Raises:
        Incomplete: some of its seeds could not be trained; the others are stored.
    """
    started = time.perf_counter() - spent
    seeds, folder = arm.seeds(run.seeds), run.folder(arm.name)
    observer.on_arm(arm, seeds)
    # The worker of an owner that was killed may need a moment to end.
    with owned(folder, wait=ORPHAN_SECONDS):
        sweep(folder)
        plan = _plan(run, arm, engine)
        trained, failed = train_groups(arm, plan, engine, folder, observer)
        chosen = sound(trained, seeds)
        failed = {seed: failed[seed] for seed in seeds if seed not in chosen}
        if chosen:
            seconds = time.perf_counter() - started
            put_together(run, arm, chosen, plan, failed, seconds)
    if failed:
        said = (f"seed {seed}: {in_a_line(why)}" for seed, why in failed.items())
        raise Incomplete("; ".join(said)) from next(iter(failed.values()))
    observer.on_finish(arm, run.record(arm.name)["seconds"])


ORPHAN_SECONDS = 10.0
"""How long a worker may outlive its parent."""


def _plan(run: Run, arm: Arm, engine: Engine) -> Plan:
    """How the seeds are batched and on how many threads, settled before the first step.

    Both change bits, so they follow from the request alone and a resumed arm obeys what
    is stored; ways to be fast that differ from it are refused. A seed that failed among
    others is tried again on its own.
    """
    seeds, file = arm.seeds(run.seeds), run.folder(arm.name) / "plan.json"
    made_of = fingerprint(arm, seeds)
    if not file.exists():
        batching = engine.batching if arm.stackable else "loop"
        if batching == "auto":
            stacked = _is_dispatch_bound(arm, seeds[0], engine)
            batching = "vmap" if stacked else "loop"
        groups = [list(seeds)] if batching == "vmap" else [[seed] for seed in seeds]
        how = {"batching": batching, "threads": arm.threads, "groups": groups}
        write_json(file, {**how, "fast": list(engine.fast), **made_of})
    plan = read_json(file)
    check_plan(file, plan, seeds)
    if (begun := plan.get("fast", [])) != list(engine.fast):
        raise BadInput(
            f"{file.parent} was begun with fast={begun}, not {list(engine.fast)}: "
            f"a run is trained in one way"
        )
    _require_same(file.parent, plan, made_of)
    failed = run.failed(arm.name) if run.is_stored(arm.name) else {}
    alone = [[seed] for seed in failed if [seed] not in plan["groups"]]
    if alone:
        plan["groups"] += alone
        write_json(file, plan)
    return plan


def _require_same(
    folder: Path, known: Mapping[str, Any], made_of: Mapping[str, str]
) -> None:
    """Refuse an arm that was begun as something else; an older record knows less."""
    for name, found in made_of.items():
        if known.get(name, found) != found:
            raise BadInput(
                f"{folder} was trained with other {name.removesuffix('_hash')}; use "
                "another directory, or remove it"
            )


def _is_dispatch_bound(arm: Arm, seed: int, engine: Engine) -> bool:
    """Whether one seed's step is so small that stacking the seeds pays."""
    if not engine.device.startswith("cpu"):
        return True
    ensemble = stacked_models(arm, (seed,), engine.device)
    stage = arm.stages[0]
    data = stack([stage.data(seed, 0)])
    if stage.batch_size is not None:
        data = rows(data, torch.arange(stage.batch_size)[None])
    with torch.no_grad(), _Calls() as calls:
        ensemble.values(stage.loss, data)
    stops = any(stage.stop_below is not None for stage in arm.stages)
    return calls.mean_bytes < (STOPPING_BOUND if stops else DISPATCH_BOUND)


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that reach torch, and what they give."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count, self.bytes = 0, 0

    @property
    def mean_bytes(self) -> float:
        """Of what a call gives."""
        return self.bytes / max(1, self.count)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = func(*args, **(kwargs or {}))
        self.count += 1
        self.bytes += sum(
            t.nbytes for t in leaves(given) if isinstance(t, torch.Tensor)
        )
        return given
