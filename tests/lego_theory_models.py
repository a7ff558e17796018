"""Theory models whose circuit is known: features and diagonals put in by hand."""

import torch

from trained.lego.action import action
from trained.lego.sentences import Vocabulary, table_of
from trained.lego.theory_model import TheoryModel


def planted(text: str, n_variables: int, sharpness: float) -> TheoryModel:
    """Eq. 17's features for every pair (j, y), a copy of slot 1, diagonals of Q."""
    act = action(text)
    words = Vocabulary.of(act, n_variables)
    model = TheoryModel(words, generator=torch.Generator().manual_seed(0))
    table, block = table_of(act), model.block
    model.requires_grad_(False)
    for neurons in (block.variable, block.value):
        for weight in neurons.parameters():
            weight.zero_()
    clip = block.value.clip + 1  # the smoothed ReLU lies 0.9 below the line
    classes = torch.arange(act.n_values)
    for y in range(act.n_values):
        right = table[:, y, None] == classes
        block.value.W2[:, :, y] = torch.where(right, clip, -clip)
        block.value.W5[:, :, y] = -clip
        block.value.W5[y, :, y] = clip
    variables = torch.arange(n_variables)
    block.variable.W1[variables, variables, 0] = 4 * clip
    for table_ in (model.tables.Q43, model.tables.Q44):
        table_[0, variables, variables] = sharpness
    return model
