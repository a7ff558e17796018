"""Theory models whose circuit is known: features and diagonals put in by hand."""

import torch

from circuits.studies.lego.substitutes import theory_circuit
from trained.lego.action import action
from trained.lego.config import Theory
from trained.lego.task import Vocabulary
from trained.lego.theory import TheoryModel


def planted(text: str, n_variables: int, sharpness: float) -> TheoryModel:
    """The planted circuit on top of nothing: every other weight is zero."""
    words = Vocabulary.of(action(text), n_variables)
    model = TheoryModel(words, Theory(), generator=torch.Generator().manual_seed(0))
    model.requires_grad_(False)
    for neurons in (model.block.variable, model.block.value):
        for weight in neurons.parameters():
            weight.zero_()
    # The smoothed ReLU lies 0.9 below the line; this much more reaches the clip.
    scale = 1 + 1 / model.block.value.clip
    return theory_circuit(model, text, sharpness, scale=scale)
