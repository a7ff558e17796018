"""The paper's own recipe: an ordinary transformer, Adam at 1e-4, 300 epochs.

All weights at once from scratch, on the next clause at the training length. The paper
states neither the number of sentences nor the width; ours are below.
"""

import torch
from torch import Tensor

from trained.arm import Arm, Stage, adam
from trained.seeding import generator

from .action import action
from .answers import clause_losses
from .config import Config, Standard
from .sentences import Sentences, Vocabulary, draw_sentences, table_of
from .standard import StandardConfig, StandardModel

N_SENTENCES, BATCH, RATE = 10_000, 128, 1e-4


def standard_name(group: str, variant: Standard) -> str:
    """The arm of a group's ordinary transformer."""
    return f"{action(group).slug}-standard-{variant}"


def standard_arm(config: Config, group: str, variant: Standard) -> Arm:
    """One ordinary transformer."""
    act = action(group)
    vocabulary = Vocabulary.of(act, config.n_variables)
    length = config.train_length

    def build(seed: int) -> StandardModel:
        source = generator(seed, "lego", "standard", act.slug)
        return StandardModel(vocabulary, _sizes(config, variant), generator=source)

    def data(seed: int, count: int, name: str) -> Sentences:
        source = generator(seed, "lego", act.slug, "standard", name)
        return draw_sentences(
            table_of(act),
            count,
            length,
            n_variables=config.n_variables,
            generator=source,
        )

    def loss(model: StandardModel, sentences: Sentences) -> Tensor:
        prediction = model(sentences.tokens(vocabulary))
        return torch.stack(clause_losses(prediction, sentences)).sum()

    per_epoch = -(-N_SENTENCES // BATCH)
    stage = Stage(
        name="all",
        steps=config.standard_epochs * per_epoch,
        optimiser=adam(RATE),
        loss=loss,
        data=lambda seed, _step: data(seed, N_SENTENCES, "train"),
        batch_size=BATCH,
    )
    return Arm(
        name=standard_name(group, variant),
        build=build,
        stages=(stage,),
        metrics={"held_out_loss": loss},
        held_out=lambda seed: data(seed, 256, "test"),
        record_every=per_epoch,
    )


def _sizes(config: Config, variant: Standard) -> StandardConfig:
    """Twice as many positions as the longest chain has steps, where there are any."""
    longest = max(config.lengths[-1], config.train_length)
    return StandardConfig(
        n_heads=config.n_heads,
        residual="added" if variant in ("residual", "norm") else "none",
        norm="layer" if variant == "norm" else "none",
        n_positions=2 * longest if variant == "positions" else 0,
    )
