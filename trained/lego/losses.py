"""What the branches are trained on and measured by, as functions of a batch."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .answers import clause_losses, rollout
from .branches import Branches
from .sentences import Sentences


class Weighted(NamedTuple):
    """Sentences of which only some steps count."""

    sentences: Sentences
    weight: Float[Tensor, "*seed batch step"]


def next_clause_loss(
    model: Branches, sentences: Sentences, *, branch: str
) -> Float[Tensor, ""]:
    """The sum of both slots' cross-entropies, mean over steps, true past given."""
    variable, value = clause_losses(model(sentences, branch), sentences)
    return variable + value


def self_labelled_loss(
    model: Branches, sentences: Sentences, *, branch: str, annotator: str
) -> Float[Tensor, ""]:
    """The same on answers that another branch wrote: no true label is used."""
    with torch.no_grad():
        reader, values = model.reader(annotator), model.model.block.attn.values
        labelled = rollout(reader, sentences, model.model.vocabulary, values=values)
    return next_clause_loss(model, labelled, branch=branch)


def weighted_loss(model: Branches, data: Weighted, *, branch: str) -> Float[Tensor, ""]:
    """The value's cross-entropy over the steps that count."""
    logits = model(data.sentences, branch).value.log_softmax(-1)
    target = data.sentences.values[..., 1:, None]
    loss = -logits.gather(-1, target)[..., 0]
    return (loss * data.weight).sum() / data.weight.sum()


def watch(model: Branches, sentences: Sentences, *, branch: str) -> dict[str, Tensor]:
    """The value's loss and the mean attention on both targets."""
    targets = sentences.targets()
    found = model.pattern(sentences, branch).mean(1).gather(-1, targets)
    return {
        "value_loss": clause_losses(model(sentences, branch), sentences)[1],
        "predicate": found[..., 0].mean(),
        "answer": found[..., 1].mean(),
    }
