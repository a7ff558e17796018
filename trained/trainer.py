"""One group of seeds through all stages of an arm, resumable at every step.

The stored state means "about to take this step", so a resumed group repeats no step
and skips none.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from .ahead import Draw, ahead
from .arm import Arm, Data, Stage
from .ensemble import Ensemble, leaves, move, rows, stack
from .errors import BadInput, Incomplete
from .fast import check_fast, losses_by, matmul_precision
from .history import History
from .seeding import generator
from .state import StateFiles, below, write_checked

Batching = Literal["auto", "vmap", "loop"]

CHEAP_SAVE = 0.5
"""Seconds; saving a model that takes n times as long happens n times as rarely."""


@dataclass(frozen=True)
class Engine:
    """How to train, as opposed to what: device, batching, how often to save."""

    device: str = "cpu"
    batching: Batching = "auto"
    save_seconds: float = 10.0
    """An unfinished arm loses at most this much work when it is killed (a large
    model more: see `CHEAP_SAVE`)."""
    fast: tuple[str, ...] = ()
    """Of `FAST`: what may cost digits."""

    def __post_init__(self) -> None:
        check_fast(self.fast, self.device)


class Observer:
    """Is told of every step and epoch; a progress bar is one."""

    def on_arm(self, arm: Arm, seeds: Sequence[int]) -> None:
        """An arm starts."""

    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:
        """A step was taken; `losses` are the seeds' training losses before it."""

    def on_epoch(self, arm: Arm, epoch: int) -> None:
        """All rows of data drawn once were seen once more."""

    def on_finish(self, arm: Arm, seconds: float) -> None:
        """An arm is trained and stored."""

    def on_failure(self, arm: Arm, error: Exception) -> None:
        """An arm, or some of its seeds, could not be trained; others go on."""


def stacked_models(arm: Arm, seeds: Sequence[int], device: str) -> Ensemble:
    """The arm's models of these seeds, before training, as one program."""
    ensemble = Ensemble([arm.build(seed).to(device) for seed in seeds])
    for tensor in ensemble.parameters.values():
        tensor.requires_grad_()
    return ensemble


def weights_file(folder: Path, step: int) -> Path:
    """Where a group's weights of a step are kept until the arm is done."""
    return folder / f"weights-{step}.safetensors"


class Trainer:
    """Trains one group of seeds through all stages, saving its state as it goes."""

    def __init__(
        self,
        arm: Arm,
        seeds: Sequence[int],
        engine: Engine,
        folder: Path,
        observer: Observer,
    ) -> None:
        self.arm, self.seeds, self.engine = arm, seeds, engine
        self.folder, self.observer = folder, observer
        self.ensemble = stacked_models(arm, seeds, engine.device)
        self._losses = losses_by(self.ensemble.values, engine.fast, engine.device)
        self.history = History()
        size, device = (len(seeds), len(arm.stages)), engine.device
        self.stopped_at = torch.full(size, -1, device=device)
        self.active = torch.ones(len(seeds), dtype=torch.bool, device=device)
        self._moving = [True] * len(seeds)
        self._order: tuple[int, Tensor] | None = None
        self.stage_index, self.step = 0, 0
        self.failed: dict[int, str] = {}
        self.settled = False
        self._states = StateFiles(folder)
        self.optimiser: torch.optim.Optimizer | None = None
        self.held_out = self._gather(arm.held_out) if arm.held_out else None
        self._last_save, self._save_cost = time.monotonic(), 0.0

    def train(self) -> None:
        """Run every stage from where the stored state left it."""
        state = self._load()
        if self.stage_index == len(self.arm.stages):
            return
        while self.stage_index < len(self.arm.stages):
            stage = self.arm.stages[self.stage_index]
            self._begin(stage, state)
            with matmul_precision(self.engine.fast):
                self._run(stage)
            state, self.stage_index, self.step = None, self.stage_index + 1, 0
        self._save_weights(self.arm.steps)
        self._save()

    def _begin(self, stage: Stage, state: dict[str, Tensor] | None) -> None:
        self.settled, self._order = False, None
        for tensor in self.ensemble.parameters.values():
            tensor.grad = None
        chosen = [
            tensor.requires_grad_(any(fnmatch(name, glob) for glob in stage.trainable))
            for name, tensor in self.ensemble.parameters.items()
        ]
        chosen = [tensor for tensor in chosen if tensor.requires_grad]
        if not chosen:
            raise BadInput(
                f"stage {stage.name}: {stage.trainable} matches no parameter"
            )
        self.optimiser = stage.optimiser.build(chosen)
        if state is not None:
            _load_optimiser(self.optimiser, state)
            self._look()
            return
        self.active.fill_(True)
        self._rest_failed()
        if stage.prepare is not None:
            # What is kept of this step is what the stage before has left.
            self._keep_weights(self._first_step())
            with torch.no_grad():
                stage.prepare(self.ensemble.parameters)
        if stage.perturb:
            self._perturb(stage, chosen)

    @torch.no_grad()
    def _perturb(self, stage: Stage, chosen: list[Tensor]) -> None:
        """Displace each seed's parameters uniformly in a ball of the stage's radius."""
        for index, seed in enumerate(self.seeds):
            source = generator(seed, self.arm.name, stage.name, "perturb")
            noise = [
                torch.randn(t.shape[1:], generator=source, dtype=t.dtype)
                for t in chosen
            ]
            norm = torch.stack([n.square().sum() for n in noise]).sum().sqrt()
            size = sum(n.numel() for n in noise)
            radius = torch.rand((), generator=source, dtype=norm.dtype) ** (1 / size)
            for tensor, direction in zip(chosen, noise, strict=True):
                move_by = stage.perturb * radius / norm * direction
                tensor[index] += move_by.to(tensor.device)

    def _run(self, stage: Stage) -> None:
        if stage.draw == "once":
            data = self._gather(lambda seed: stage.data(seed, 0))
            if stage.label is not None:
                data = self.ensemble.labelled(stage.label, data)
            self._take_steps(stage, lambda step: self._rows(stage, data, step))
            return

        def draw(step: int) -> Data:
            return stack([stage.data(seed, step) for seed in self.seeds])

        with ahead(draw, stage.steps, self.engine.device) as drawn:
            self._take_steps(stage, lambda step: move(drawn(step), self.engine.device))

    def _take_steps(self, stage: Stage, batch: Draw) -> None:
        start = self._first_step()
        while self.step < stage.steps:
            self._save_when_due(start + self.step)
            if any(self._moving):
                self._take_step(stage, batch(self.step), start + self.step)
            elif self._is_record(start + self.step):
                self._record_at_rest(stage, batch, start + self.step)
            self.step += 1
        if self.stage_index == len(self.arm.stages) - 1:
            losses = self.ensemble.values(stage.loss, batch(self.step)).detach()
            self._record(self.arm.steps, losses)

    def _record_at_rest(self, stage: Stage, batch: Draw, step: int) -> None:
        """A record once every seed has stopped; measured once if data is fixed."""
        if self.settled and stage.draw == "once" and stage.batch_size is None:
            self.history.repeat(step)
            return
        losses = self.ensemble.values(stage.loss, batch(self.step))
        self._record(step, losses.detach())
        self.settled = True

    def _rows(self, stage: Stage, data: Data, step: int) -> Data:
        """A step's rows of data that were drawn once; all in turn, epoch by epoch."""
        if stage.batch_size is None:
            return data
        n_rows = leaves(data)[0].shape[1]
        epoch, place = divmod(step, -(-n_rows // stage.batch_size))
        if place == 0 and epoch > 0:
            self.observer.on_epoch(self.arm, epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._shuffled(stage, n_rows, epoch)
        first = place * stage.batch_size
        return rows(data, self._order[1][:, first : first + stage.batch_size])

    def _shuffled(self, stage: Stage, n_rows: int, epoch: int) -> Tensor:
        """Every seed's order of the rows in an epoch."""
        names = (self.arm.name, stage.name, "epoch", epoch)
        sources = (generator(seed, *names) for seed in self.seeds)
        orders = [torch.randperm(n_rows, generator=source) for source in sources]
        return torch.stack(orders).to(self.engine.device)

    def _take_step(self, stage: Stage, data: Data, step: int) -> None:
        assert self.optimiser is not None
        losses = self._losses(stage.loss, data)
        self.optimiser.zero_grad()
        torch.autograd.backward(losses.sum())
        losses = losses.detach()
        if self._is_record(step):
            self._record(step, losses)
        if stage.stop_below is not None:
            self._stop(losses, stage.stop_below)
        self._edit_gradients(stage)
        self.optimiser.param_groups[0]["lr"] = stage.optimiser.rate(
            self.step, stage.steps
        )
        self._update(stage)
        self.observer.on_step(self.arm, step, losses)

    def _stop(self, losses: Tensor, threshold: float) -> None:
        newly = self.active & (losses < threshold)
        self.stopped_at[:, self.stage_index].masked_fill_(newly, self.step)
        self.active &= ~newly
        if self._on_host:
            self._look()

    @property
    def _on_host(self) -> bool:
        """Whether reading a tensor waits for nothing."""
        return torch.device(self.engine.device).type == "cpu"

    def _look(self) -> None:
        """See which seeds have stopped; on a device only with every record."""
        self._moving = self.active.tolist()

    def _edit_gradients(self, stage: Stage) -> None:
        gradients = {
            name: tensor.grad
            for name, tensor in self.ensemble.parameters.items()
            if tensor.grad is not None
        }
        if stage.edit_gradients is not None:
            stage.edit_gradients(gradients)
        if stage.clip is not None:
            squares = [
                g.square().reshape(len(g), -1).sum(1) for g in gradients.values()
            ]
            norm = torch.stack(squares).sum(0).sqrt()
            factor = (stage.clip / norm.clamp_min(1e-12)).clamp_max(1.0)
            for gradient in gradients.values():
                gradient.mul_(_per_seed(factor, gradient))

    @torch.no_grad()
    def _update(self, stage: Stage) -> None:
        assert self.optimiser is not None
        # On a device a seed may have stopped since we looked.
        certain = self._on_host or stage.stop_below is None
        moving = certain and all(self._moving)
        tensors = self.optimiser.param_groups[0]["params"]
        before = [] if moving else [tensor.clone() for tensor in tensors]
        self.optimiser.step()
        for tensor, old in zip(tensors, before, strict=False):
            tensor.copy_(torch.where(_per_seed(self.active, tensor), tensor, old))

    def _is_record(self, step: int) -> bool:
        return step % self.arm.record_every == 0

    def _record(self, step: int, losses: Tensor) -> None:
        self._fail(losses.isfinite(), f"its loss is not finite at step {step}")
        with torch.no_grad():
            values = {
                name: self.ensemble.values(metric, self.held_out)
                for name, metric in self.arm.metrics.items()
            }
            if self.arm.measure is not None:
                values |= self.ensemble.named_values(self.arm.measure, self.held_out)
        self.history.append(step, {"loss": losses, **values})

    def _fail(self, sound: Tensor, reason: str) -> None:
        """Let the seeds that are not sound rest; the others do not depend on them."""
        for seed, fine in zip(self.seeds, sound.tolist(), strict=True):
            if not fine and seed not in self.failed:
                self.failed[seed] = f"{reason}; lower the learning rate"
        if len(self.failed) == len(self.seeds):
            raise Incomplete(next(iter(self.failed.values())))
        self._rest_failed()

    def _rest_failed(self) -> None:
        for seed in self.failed:
            self.active[self.seeds.index(seed)] = False
        self._look()

    def _gather(self, draw: Callable[[int], Data]) -> Data:
        """Each seed's data, drawn on the CPU for the same numbers on any device."""
        return move(stack([draw(seed) for seed in self.seeds]), self.engine.device)

    def _first_step(self) -> int:
        """The current stage's first step, counted over all stages."""
        return sum(s.steps for s in self.arm.stages[: self.stage_index])

    def _keep_weights(self, step: int) -> None:
        if step in self.arm.save_steps and not weights_file(self.folder, step).exists():
            self._save_weights(step)

    def _save_when_due(self, step: int) -> None:
        self._keep_weights(step)
        pause = self.engine.save_seconds * max(1.0, self._save_cost / CHEAP_SAVE)
        if time.monotonic() - self._last_save >= pause:
            # What is taken up again must not be beyond help already.
            self._fail(self._finite(), f"its weights are not finite at step {step}")
            self._save()

    def _finite(self) -> Tensor:
        """For every seed, whether all that is trained are numbers."""
        each = [
            t.detach().isfinite().reshape(len(t), -1).all(1)
            for t in self.ensemble.parameters.values()
            if t.requires_grad
        ]
        return torch.stack(each).all(0)

    def _save_weights(self, step: int) -> None:
        write_checked(weights_file(self.folder, step), self._stored())

    def _stored(self) -> dict[str, Tensor]:
        whole = self.ensemble.state()
        return {name: t for name, t in whole.items() if self.arm.is_stored(name)}

    def _save(self) -> None:
        """Store all that the next step depends on."""
        assert self.optimiser is not None
        started = time.monotonic()
        tensors = {f"model/{k}": v for k, v in self._stored().items()}
        tensors |= {f"history/{k}": v for k, v in self.history.tensors().items()}
        tensors |= _optimiser_tensors(self.optimiser)
        tensors |= {"active": self.active, "stopped_at": self.stopped_at}
        place = {
            "stage": self.stage_index,
            "step": self.step,
            "recorded": self.history.steps,
            "failed": list(self.failed.items()),
        }
        self._states.write(tensors, place)
        self._last_save = time.monotonic()
        self._save_cost = self._last_save - started

    def _load(self) -> dict[str, Tensor] | None:
        """Go back to the stored state, if there is one, and give it."""
        stored = self._states.read()
        if stored is None:
            return None
        state, place = stored
        self.stage_index, self.step = place["stage"], place["step"]
        self.ensemble.load(below("model/", state))
        self.history = History.restore(place["recorded"], below("history/", state))
        self.active = state["active"].to(self.engine.device)
        self.stopped_at = state["stopped_at"].to(self.engine.device)
        self.failed = dict(place["failed"])
        return state


def _per_seed(values: Tensor, like: Tensor) -> Tensor:
    """One value per seed, shaped to broadcast over a stacked tensor."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimiser/{index}/{key}": value
        for index, tensor in enumerate(optimiser.param_groups[0]["params"])
        for key, value in optimiser.state[tensor].items()
        if value is not None
    }


def _load_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    for index, tensor in enumerate(optimiser.param_groups[0]["params"]):
        stored = below(f"optimiser/{index}/", state)
        optimiser.state[tensor] = {
            key: value.to(tensor.device) for key, value in stored.items()
        }
