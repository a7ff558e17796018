"""Small things to train whose course is known, and a study made of them.

`Bowl` can be followed by hand; `Net` is a network on which mistakes of the engine
(seeds mixed up, state lost) would show. The subprocess tests import this file.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from circuits.claims import Claim, Null
from circuits.conditions import Each
from circuits.lab import Lab, once
from circuits.study import Study
from trained.arm import Arm, Optimiser, Stage, adam, gradient_descent, shuffled
from trained.config import Preset, require
from trained.seeding import generator
from trained.store import Run
from trained.trainer import Engine, Observer
from trained.training import train

SEEDS = (0, 1, 4)


class Bowl(nn.Module):
    """Two numbers a and b whose loss is (a^2 + b^2) / 2, so the gradient is (a, b)."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a))
        self.b = nn.Parameter(torch.tensor(b))


def height(model: Bowl, _data: Tensor) -> Tensor:
    return 0.5 * (model.a.square() + model.b.square())


def bowl_stage(**changes: Any) -> Stage:
    """Gradient descent that halves what it trains at every step."""
    stage = Stage(
        name="descend",
        steps=4,
        optimiser=gradient_descent(0.5),
        loss=height,
        data=lambda _seed, _step: torch.zeros(1),
    )
    return replace(stage, **changes)


def bowl_arm(
    starts: dict[int, tuple[float, float]], *stages: Stage, **fields: Any
) -> Arm:
    """An arm whose seeds start at the given points."""
    fields = {"name": "bowl", "record_every": 1, **fields}
    return Arm(build=lambda seed: Bowl(*starts[seed]), stages=stages, **fields)


class Net(nn.Module):
    """Two layers, with a buffer that belongs to the seed."""

    shift: Tensor

    def __init__(self, seed: int, width: int = 4) -> None:
        super().__init__()
        source = generator(seed, "net")
        self.first = nn.Parameter(torch.randn(3, width, generator=source))
        self.second = nn.Parameter(torch.randn(width, generator=source))
        self.register_buffer("shift", torch.randn(3, generator=source))

    def forward(self, x: Tensor) -> Tensor:
        return ((x + self.shift) @ self.first).tanh() @ self.second


def points(seed: int, step: int) -> dict[str, Tensor]:
    """Twelve inputs with noisy targets."""
    x = torch.randn(12, 3, generator=generator(seed, "points", step))
    return {"x": x, "y": x.sum(dim=1)}


def squared_error(model: Net, data: dict[str, Tensor]) -> Tensor:
    return (model(data["x"]) - data["y"]).square().mean()


def size(model: Net, _data: dict[str, Tensor]) -> Tensor:
    return model.second.square().sum()


def net_stage(**changes: Any) -> Stage:
    stage = Stage(
        name="fit", steps=9, optimiser=adam(0.05), loss=squared_error, data=points
    )
    return replace(stage, **changes)


def net_arm(*stages: Stage, **fields: Any) -> Arm:
    defaults: dict[str, Any] = {
        "name": "net",
        "metrics": {"size": size, "error": squared_error},
        "held_out": lambda seed: points(seed, 1000),
        "record_every": 2,
    }
    return Arm(**{"build": Net, "stages": stages, **defaults, **fields})


def two_stage_arm(steps: int, stop_below: float = 1.0) -> Arm:
    """All that a resumed run must get right: moments, epochs, perturbations, stops."""
    first = net_stage(
        name="first", steps=steps, batch_size=5, perturb=0.1, stop_below=stop_below
    )
    second = net_stage(
        name="second",
        steps=steps,
        draw="each step",
        optimiser=Optimiser("adamw", 0.05, weight_decay=0.1, warmup=2, decay=0.5),
        trainable=("first",),
        perturb=0.1,
        clip=1.0,
    )
    return net_arm(first, second, save_steps=(0, 2, steps, steps + 1))


def start_run(path: Path, seeds: tuple[int, ...] = SEEDS, study: str = "toy") -> Run:
    manifest = {
        "study": study,
        "preset": "quick",
        "config": {},
        "seeds": list(seeds),
        "device": "cpu",
        "environment": {},
    }
    return Run.create(path, manifest)


class _Slow(Observer):
    """Tells each step and takes its time, so that there is a moment to be killed in."""

    def on_step(self, arm: Arm, step: int, losses: Tensor) -> None:  # noqa: ARG002
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()
        time.sleep(0.005)


def long_arm() -> Arm:
    """Two stages of 200 steps in which no seed stops."""
    return two_stage_arm(200, stop_below=0.0)


def train_slowly(path: str) -> None:
    """What the process that gets killed does."""
    engine = Engine(batching="vmap", save_seconds=0.02)
    train(start_run(Path(path)), [long_arm()], engine=engine, observer=_Slow())


@dataclass(frozen=True)
class Head:
    """A group of fields."""

    depth: int = 1


@dataclass(frozen=True)
class Config:
    """The toy study: nets of some width, trained for some steps."""

    width: int = 4
    steps: int = 3
    rate: float = 0.05
    tags: tuple[str, ...] = ("a",)
    fast: bool = False
    limit: int | None = None
    rule: Literal["adam", "gd"] = "adam"
    head: Head = field(default_factory=Head)
    twins: bool = False

    def __post_init__(self) -> None:
        require(1 <= self.width <= 99, f"width={self.width}: choose 1 to 99")
        require(self.steps >= 1, f"steps={self.steps}: at least 1")


PRESETS = {
    "quick": Preset(Config(), n_seeds=3, cost="a blink"),
    "paper": Preset(Config(steps=5), n_seeds=4, cost="two blinks"),
}


def study_arms(config: Config) -> tuple[Arm, ...]:
    """Two arms, so that there is something to train side by side."""
    optimiser = Optimiser(config.rule, config.rate)
    stage = net_stage(steps=config.steps, optimiser=optimiser)
    build: Callable[[int], nn.Module] = lambda seed: Net(seed, config.width)  # noqa: E731
    names = ("net", "twin")
    arms = tuple(replace(net_arm(stage, name=n), build=build) for n in names)
    return (*arms, *(shuffled(a, permute) for a in arms)) if config.twins else arms


def permute(data: dict[str, Tensor], source: torch.Generator) -> dict[str, Tensor]:
    """The same inputs with their targets permuted."""
    order = torch.randperm(len(data["y"]), generator=source)
    return {**data, "y": data["y"][order]}


class ToyLab(Lab):
    """The nets, opened for measuring."""

    cause = 1.0
    """What an edit of the nets gives; a substitute may have another."""

    @once
    def errors(self, arm: str) -> list[float]:
        """The squared error of each seed on inputs it was not trained on."""
        return self.each(
            arm, lambda model, seed: squared_error(model, points(seed, 1000))
        )

    @once
    def sizes(self, arm: str) -> list[float]:
        """The size of each seed's second layer."""
        return self.each(arm, lambda model, _seed: size(model, {}))


SIZE = Claim(
    "toy.size",
    "The second layer has a size.",
    source="Section 1",
    kind="behaviour",
    conditions=(Each("size", ">= 0", lambda lab: lab.sizes("net")),),
    nulls=(Null("nothing", measure=lambda _lab: [-1.0]),),
    weight=3,
    paper=1.5,
    headline="Sizes",
)
"""Holds for every net."""

NEGATIVE = replace(
    SIZE,
    id="toy.negative",
    conditions=(Each("size", "< 0", lambda lab: lab.sizes("net")),),
    origin="ours",
)
"""Never holds, and does not count."""


def draw_sizes(lab: ToyLab) -> object:
    """The toy study's one figure."""
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot(lab.sizes("net"))
    return figure


def study(*claims: Claim, slug: str = "toy") -> Study:
    """The toy study with these claims."""
    named = [replace(c, id=c.id.replace("toy.", f"{slug}.")) for c in claims]
    return Study(
        slug=slug,
        title=f"The {slug} paper",
        config=Config,
        presets=PRESETS,
        claims=lambda _config: named,
        arms_part=study_arms,
        lab_part=ToyLab,
        figures_part={"loss": draw_sizes},
    )


STUDY = study(SIZE, NEGATIVE)
"""Somebody's study: `tests.toy:STUDY`."""
OTHER = study(SIZE, slug="other")
REFUTED = study(replace(NEGATIVE, origin="paper"))
FOOLED = study(replace(SIZE, nulls=(Null("nothing", measure=lambda _lab: [1.0]),)))
"""Its null passes as well."""
