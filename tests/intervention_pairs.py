"""What the tests of interventions share: prompt pairs, and one cell at a time."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from circuits.hooks import Model, intervene
from circuits.interventions.edit import Edits
from circuits.interventions.passes import answer_logits
from circuits.interventions.sweep import Reading, logit_difference
from tests.ground_truth import Decoder, DecoderConfig, GroundTruth
from trained.task import Batch


class Pair(NamedTuple):
    """Clean and corrupt prompts, and what is read off them."""

    clean: Batch
    corrupt: Batch
    reading: Reading


def pair_of(truth: GroundTruth) -> Pair:
    """Each prompt of a wired model with the next one's as its corrupt partner."""
    clean = Batch(truth.tokens, truth.targets)
    corrupt = Batch(truth.tokens.roll(-1, 0), truth.targets.roll(-1, 0))
    return Pair(clean, corrupt, Reading(logit_difference(corrupt.targets)))


def random_decoder(seed: int = 0, n_layers: int = 3) -> Decoder:
    """A random GPT-2 in double precision, so that equal means equal."""
    config = DecoderConfig(
        d_vocab=13, d_model=12, n_layers=n_layers, n_heads=3, n_ctx=6, init_std=0.4
    )
    source = torch.Generator().manual_seed(seed)
    model = Decoder(config, generator=source).double()
    for name, parameter in model.named_parameters():
        if ".b_" in name:
            parameter.data.normal_(generator=source)
    return model


def random_pair(n_examples: int = 4, n_pos: int = 5) -> Pair:
    """Random prompts that differ at position 1 and after."""
    source = torch.Generator().manual_seed(1)
    tokens = torch.randint(13, (2, n_examples, n_pos), generator=source)
    tokens[1, :, 0] = tokens[0, :, 0]
    tokens[1, :, 1] = (tokens[0, :, 1] + 1) % 13
    right = torch.arange(n_examples) % 13
    reading = Reading(logit_difference((right + 1) % 13), tokens_at_once=64)
    return Pair(Batch(tokens[0], right), Batch(tokens[1], right), reading)


def one_at_a_time(
    model: Model, examples: Batch, cells: Sequence[Edits], reading: Reading
) -> Tensor:
    """The metric of every cell in a whole pass of its own; [cell, example]."""
    rows = []
    for cell in cells:
        with intervene(model, cell):
            rows.append(reading.metric(answer_logits(model, examples), examples))
    return torch.stack(rows)
