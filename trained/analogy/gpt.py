"""GPT-2 from scratch on the same prompts, embeddings orthonormal and frozen."""

from functools import partial
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from trained.arm import Arm, Optimiser, Stage
from trained.decoder import Decoder, DecoderConfig
from trained.seeding import generator

from .config import Config
from .data import Curriculum, curriculum
from .quantities import metrics, premise_loss

INIT_STD = 0.005
"""Four times smaller than GPT-2's: at 0.02 joint training transfers only in part."""
MAX_STEPS = 400
FITTED = 0.008
"""Each phase ends at this loss, with a new optimiser for the next."""


def arms(config: Config) -> tuple[Arm, ...]:
    """The curricula, the replay runs, both two-hop tasks, and the values of k."""
    result = []
    if "joint" in config.curricula:
        result += [
            _arm(config, joint_name(k), curriculum("joint", k)) for k in config.gpt_ks
        ]
    for name in ("SA", "AS_T", "AS_E"):
        if name in config.curricula:
            taught = curriculum(name, config.multiplicity)
            result.append(_arm(config, f"gpt-{name}", taught))
            if name != "SA":
                again = taught.with_replay()
                result.append(_arm(config, f"gpt-{name}-replay", again))
    for name in ("bridge", "no_bridge"):
        taught = curriculum(name, config.multiplicity)
        result.append(_arm(config, f"gpt-{name}", taught))
    return tuple(result)


def joint_name(k: int) -> str:
    """The arm of joint training with k copies of the similarity premises."""
    return f"gpt-joint-k{k}"


def final_states(
    model: Any, prompts: Int[Tensor, "pair pos"]
) -> Float[Tensor, "pair d_model"]:
    """Hidden states after the final norm at the last token."""
    return model.final_norm(model.through(model.embed(prompts)))[:, -1]


def _arm(config: Config, name: str, taught: Curriculum) -> Arm:
    world = taught.world(config.gpt_entities)
    stages = tuple(
        Stage(
            f"phase {index}",
            MAX_STEPS,
            Optimiser("adamw", 1e-3, weight_decay=0.01),
            premise_loss,
            world.draw(phase),
            stop_below=FITTED,
        )
        for index, phase in enumerate(taught.phases, start=1)
    )
    return Arm(
        name,
        partial(_build, _shape(config, world.size)),
        stages,
        metrics(final_states),
        lambda _seed: world.conclusions(),
        record_every=10,
        save_steps=(MAX_STEPS,) if len(stages) > 1 else (),
        max_seeds=config.slow_seeds,
    )


def _shape(config: Config, d_vocab: int) -> DecoderConfig:
    return DecoderConfig(
        d_vocab=d_vocab,
        d_model=config.gpt_width,
        n_layers=config.gpt_layers,
        n_heads=config.gpt_heads,
        n_ctx=2,
        head="untied",
        embedding="orthonormal",
        init_std=INIT_STD,
    )


def _build(shape: DecoderConfig, seed: int) -> Decoder:
    return Decoder(shape, generator=generator(seed, "analogy", "gpt", shape.d_vocab))
