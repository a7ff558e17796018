"""An arm: one model of a study and how it is trained, as data.

A study compares several arms (partial and full fine-tuning, with and without an
identity bridge). Everything random in an arm is a function of its seed, so two arms
that should share a relation table or a data set simply derive it from the same name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from .seeding import generator


@dataclass(frozen=True)
class Optimiser:
    """Plain gradient descent, Adam or AdamW with an optional warm-up and decay.

    All three act element by element, so one optimiser over parameters stacked along
    a seed axis is the same as one optimiser per seed.
    """

    kind: Literal["gd", "adam", "adamw"]
    lr: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    warmup: int = 0
    """Steps over which the learning rate rises linearly to `lr`."""
    decay: float = 0.0
    """Fraction of the steps, at the end, over which it falls linearly to 0."""

    def build(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """The torch optimiser over these parameters."""
        if self.kind == "gd":
            return torch.optim.SGD(
                parameters, lr=self.lr, weight_decay=self.weight_decay, fused=True
            )
        make = torch.optim.Adam if self.kind == "adam" else torch.optim.AdamW
        return make(
            parameters,
            lr=self.lr,
            betas=self.betas,
            weight_decay=self.weight_decay,
            fused=True,
        )

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step (counted from 0) of a stage of `steps` steps."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        falling = round(self.decay * steps)
        left = steps - step
        cool = min(1.0, left / falling) if falling else 1.0
        return self.lr * warm * cool


def gradient_descent(lr: float, *, weight_decay: float = 0.0) -> Optimiser:
    """Plain gradient descent, theta <- theta - lr * gradient."""
    return Optimiser("gd", lr, weight_decay)


def adam(lr: float) -> Optimiser:
    """Adam with torch's usual betas and no weight decay."""
    return Optimiser("adam", lr)


Data = Any
"""A tree of tensors whose leaves share their first axis: a Batch or a dict of them."""

Draw = Callable[[int, int], Data]
"""(seed, step) -> data; the step is 0 for data drawn once."""

Quantity = Callable[[Any, Data], Tensor]
"""(model, data) -> a scalar tensor: a loss or a metric."""

Quantities = Callable[[Any, Data], dict[str, Tensor]]
"""(model, data) -> scalar tensors by name, from one forward pass."""


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one loss, one optimiser and one set of parameters."""

    name: str
    steps: int
    optimiser: Optimiser
    loss: Quantity
    data: Draw
    draw: Literal["once", "each step"] = "once"
    label: Callable[[Any, Data], Data] | None = None
    """(model, data) -> data drawn once as the stage trains on them, such as with a
    model's own answers; may depend on nothing that the stage trains."""
    batch_size: int | None = None
    """Rows per step of data drawn once, reshuffled every epoch; None: all of them."""
    trainable: tuple[str, ...] = ("*",)
    """Globs of parameter names; the rest is frozen."""
    prepare: Callable[[dict[str, Tensor]], None] | None = None
    """Changes the parameters (with a leading seed axis) in place before the stage;
    weights kept of its first step are those before the change."""
    perturb: float = 0.0
    """Radius of the ball from which the trainable parameters are displaced first."""
    stop_below: float | None = None
    """A seed stops, alone, once its training loss is below this."""
    edit_gradients: Callable[[dict[str, Tensor]], None] | None = None
    """Changes the gradients (with a leading seed axis) in place before each step."""
    clip: float | None = None
    """Largest norm of a seed's whole gradient."""

    def __post_init__(self) -> None:
        if self.label is not None and self.draw != "once":
            raise ValueError(f"stage {self.name}: only data drawn once are labelled")


@dataclass(frozen=True)
class Arm:
    """A model, the stages that train it, and what is recorded on the way."""

    name: str
    build: Callable[[int], nn.Module]
    """seed -> the model before training."""
    stages: tuple[Stage, ...]
    metrics: Mapping[str, Quantity] = field(default_factory=dict)
    held_out: Callable[[int], Data] | None = None
    """seed -> the data that the metrics are measured on."""
    record_every: int = 100
    save_steps: tuple[int, ...] = ()
    """Steps, counted over all stages, whose weights are kept; the last always is."""
    max_seeds: int | None = None
    """Train only this many of the run's seeds; None: all of them."""
    measure: Quantities | None = None
    """Further metrics, where one forward pass serves several."""
    stores: Literal["everything", "trained"] = "everything"
    """`trained`: only the parameters that some stage trains are stored; `build` gives
    the rest again, as it does for a pretrained model."""
    stackable: bool = True
    """Whether its seeds may become one batched program (not a transformers model)."""
    threads: int = 1
    """CPU threads of its training; more pays only for large matrices, and changes
    bits, so it is part of the request."""

    def __post_init__(self) -> None:
        late = [step for step in self.save_steps if not 0 <= step <= self.steps]
        if late:
            raise ValueError(f"arm {self.name} has no step {late[0]} to save")

    @property
    def steps(self) -> int:
        """Steps over all stages, if no seed stops early."""
        return sum(stage.steps for stage in self.stages)

    def is_stored(self, name: str) -> bool:
        """Whether a tensor of the model belongs to the stored weights."""
        globs = (glob for stage in self.stages for glob in stage.trainable)
        return self.stores == "everything" or any(fnmatch(name, g) for g in globs)

    def seeds(self, seeds: tuple[int, ...]) -> tuple[int, ...]:
        """The seeds of a run that this arm is trained with."""
        return seeds[: self.max_seeds]


SHUFFLED = "-shuffled"
"""What the name of an arm's shuffled twin ends with."""

Shuffle = Callable[[Data, Generator], Data]
"""(data, randomness) -> the same data with its answers permuted over the examples."""


def shuffled(arm: Arm, shuffle: Shuffle) -> Arm:
    """The null of an arm: the same model, steps and data, on permuted answers."""

    def permuted(stage: Stage) -> Stage:
        def data(seed: int, step: int) -> Data:
            source = generator(seed, arm.name, stage.name, "shuffled", step)
            return shuffle(stage.data(seed, step), source)

        return replace(stage, data=data)

    stages = tuple(permuted(stage) for stage in arm.stages)
    return replace(arm, name=arm.name + SHUFFLED, stages=stages)
