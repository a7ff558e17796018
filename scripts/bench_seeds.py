"""Ten seeds as one batched program, against a loop over the seeds and against one.

    python -m scripts.bench_seeds

Prints ratios measured in one run; the baseline is this engine's own loop. The arms
are three sizes: a tiny one (partial fine-tuning), a two-layer decoder of width 16,
and one of width 64, where stacking should not pay.
"""

import tempfile
import time
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
    arm = next(arm for arm in arms(QUICK) if arm.name == "partial-affine")
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


def seconds(arm: Arm, n_seeds: int, batching: Batching) -> tuple[float, torch.Tensor]:
    """Wall time of training, and the final losses."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = {"study": "bench", "config": {}, "seeds": list(range(n_seeds))}
        run = Run.create(Path(folder), manifest)
        engine = Engine(batching=batching)
        started = time.perf_counter()
        train(run, [arm], engine=engine)
        return time.perf_counter() - started, run.metrics(arm.name)["loss"][:, -1]


def main() -> None:
    """Print one line per size."""
    torch.set_num_threads(1)
    seconds(partial_arm(), 2, "vmap")
    print(f"{SEEDS} seeds, {STEPS} steps, one thread")
    for arm in (partial_arm(), decoder_arm(16, 16), decoder_arm(64, 64)):
        one, _ = seconds(arm, 1, "loop")
        stacked, stacked_loss = seconds(arm, SEEDS, "vmap")
        looped, looped_loss = seconds(arm, SEEDS, "loop")
        apart = float((stacked_loss - looped_loss).abs().max())
        print(
            f"{arm.name}: one seed {one:.2f} s; stacked {stacked / one:.1f}x one seed, "
            f"{looped / stacked:.1f}x faster than the loop; losses agree to {apart:.0e}"
        )


if __name__ == "__main__":
    main()
