"""The ReLU block with everything trained at once (Table 4), at two init scales.

What attribution before similarity does here depends on the reading and on the scale,
so both readings run at both scales; nothing is frozen.
"""

from dataclasses import dataclass
from functools import partial

from trained.arm import Arm, Stage, gradient_descent
from trained.seeding import generator

from .block import ReluBlock
from .config import Config
from .data import curriculum
from .quantities import metrics, premise_loss, value_features

N_NEURONS = 32
MAX_STEPS = 800
FITTED = 0.0135
"""Each phase ends at this loss, that of the paper's Table 4."""


@dataclass(frozen=True)
class Scale:
    """How large the block starts, and the rate that suits it."""

    name: str
    scale: float
    std: float
    rate: float


SCALES = (Scale("main", 64.0, 0.03, 0.2), Scale("small", 256.0, 0.003, 0.1))


def arms(config: Config) -> tuple[Arm, ...]:
    """Every curriculum at every init scale."""
    return tuple(
        _arm(config, scale, name) for scale in SCALES for name in config.curricula
    )


def _arm(config: Config, scale: Scale, name: str) -> Arm:
    taught = curriculum(name, config.multiplicity)
    world = taught.world(config.relu_entities)
    stages = tuple(
        Stage(
            f"phase {index}",
            MAX_STEPS,
            gradient_descent(scale.rate),
            premise_loss,
            world.draw(phase),
            stop_below=FITTED,
        )
        for index, phase in enumerate(taught.phases, start=1)
    )
    return Arm(
        f"relu-{scale.name}-{name}",
        partial(_build, world.size, scale),
        stages,
        metrics(value_features),
        lambda _seed: world.conclusions(),
        record_every=20,
        max_seeds=None if scale is SCALES[0] else config.slow_seeds,
    )


def _build(d_vocab: int, scale: Scale, seed: int) -> ReluBlock:
    return ReluBlock(
        d_vocab,
        d_vocab + 6,  # 128 for 30 tuples: about square
        n_neurons=N_NEURONS,
        scale=scale.scale,
        std=scale.std,
        generator=generator(seed, "analogy", "relu", d_vocab),
    )
