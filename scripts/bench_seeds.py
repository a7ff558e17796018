"""Ten seeds as one batched program, against a loop over the seeds and against one.

    python -m scripts.bench seeds

The engine chooses by itself; the baseline is its own loop. The arms are a tiny one
(partial fine-tuning) and two-layer decoders of width 16, 32 and 64, the last of which
stacking should not slow down.
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

from trained.arm import Arm, Data, Stage, adam
from trained.decoder import Decoder, DecoderConfig
from trained.recall.arms import arms
from trained.recall.config import QUICK
from trained.seeding import generator
from trained.store import Run
from trained.task import Batch
from trained.trainer import Batching, Engine
from trained.training import train

from .bench_timing import Line, interleaved, ratio

SEEDS = 10
STEPS = 200


def copy_task(seed: int, step: int, *, batch: int, length: int) -> Data:
    """Random tokens whose first is the answer."""
    source = generator(seed, "bench", step)
    tokens = torch.randint(32, (batch, length), generator=source)
    return Batch(tokens, tokens[:, 0])


def loss(model: Decoder, data: Batch) -> torch.Tensor:
    """Cross-entropy at the last position."""
    return F.cross_entropy(model(data.tokens)[:, -1], data.targets)


def decoder_arm(width: int, batch: int) -> Arm:
    """A two-layer decoder that learns to copy."""
    config = DecoderConfig(d_vocab=32, d_model=width, n_layers=2, n_heads=2, n_ctx=8)
    data = partial(copy_task, batch=batch, length=8)
    stage = Stage("copy", STEPS, adam(1e-3), loss, data, draw="each step")
    return Arm(
        f"decoder, width {width}, batch {batch}",
        lambda seed: Decoder(config, generator=generator(seed, "bench")),
        (stage,),
    )


def partial_arm() -> Arm:
    """Partial fine-tuning of the recall study, cut to the benchmark's steps."""
    arm = next(arm for arm in arms(QUICK) if arm.name == "partial")
    stage = arm.stages[0]
    short = Stage(
        stage.name,
        STEPS,
        stage.optimiser,
        stage.loss,
        stage.data,
        perturb=stage.perturb,
    )
    return Arm("recall, partial fine-tuning", arm.build, (short,))


def trained(arm: Arm, n_seeds: int, batching: Batching) -> None:
    """Train the seeds of an arm."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = {"study": "bench", "config": {}, "seeds": list(range(n_seeds))}
        run = Run.create(Path(folder), manifest)
        train(run, [arm], engine=Engine(batching=batching))


AIMS = {
    16: ("seeds.ten_over_one", "<= 3"),
    32: ("seeds.ten_over_one_wide", "<= 4.5"),
}
"""By width, the key and the aim of ten seeds' time over that of one."""


def lines(rounds: int = 3) -> Iterator[Line]:
    """Every line of the table."""
    torch.set_num_threads(1)
    arms = {0: partial_arm(), **{w: decoder_arm(w, 16) for w in (16, 32)}}
    worst = 0.0
    for width, arm in {**arms, 64: decoder_arm(64, 64)}.items():
        timed = interleaved(
            {
                "one": partial(trained, arm, 1, "loop"),
                "ten": partial(trained, arm, SEEDS, "auto"),
                "loop": partial(trained, arm, SEEDS, "loop"),
            },
            rounds,
        )
        key, aim = AIMS.get(width, ("", ""))
        yield Line(f"{arm.name}: ten / one", ratio(timed, "ten", "one"), key, aim)
        over = ratio(timed, "ten", "loop")
        yield Line(f"{arm.name}: ten / loop over ten", over)
        worst = max(worst, over)
    yield Line("worst of these", worst, "seeds.worst_over_loop", "<= 1.05")
