"""What a model answers and where it attends, on test sentences, piece by piece."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.hooks import intervene, record
from circuits.sites import Site
from trained.lego.answers import right_steps
from trained.lego.folded import Prediction
from trained.lego.sentences import Sentences

from .specimen import Specimen

PATTERN = Site("pattern", 0)

AT_ONCE = 2_000_000
"""Most attention weights of a head in one pass."""

PatternEdit = Callable[[Tensor, Sentences], Tensor]
"""(pattern [batch, head, query, key], sentences) -> the pattern in its place."""


@dataclass(frozen=True)
class Marks:
    """Which steps are right when the true past is given."""

    variable: Bool[Tensor, "sentence step"]
    value: Bool[Tensor, "sentence step"]

    @property
    def step(self) -> float:
        """Share of right values over all steps [per-step accuracy]."""
        return float(self.value.double().mean())

    @property
    def variable_step(self) -> float:
        """Share of right variables over all steps."""
        return float(self.variable.double().mean())

    @property
    def all(self) -> float:
        """Share of sentences whose greedy rollout is right throughout.

        A rollout first errs where the model errs given the true past, so it is right
        throughout exactly where every step is; a test runs both.
        """
        return float((self.variable & self.value).all(1).double().mean())


def marks(
    specimen: Specimen, sentences: Sentences, edit: PatternEdit | None = None
) -> Marks:
    """The marks of a model, its attention edited or not."""
    return Marks(*right_steps(predictions(specimen, sentences, edit), sentences))


@torch.no_grad()
def predictions(
    specimen: Specimen, sentences: Sentences, edit: PatternEdit | None = None
) -> Prediction:
    """What a model predicts after every answer, its attention edited or not."""
    found = []
    for part in parts(sentences):
        tokens = part.tokens(specimen.model.vocabulary)
        with _edited(specimen, part, edit):
            found.append(specimen.model(tokens))
    variables, values = zip(*found, strict=True)
    return Prediction(torch.cat(variables), torch.cat(values))


@torch.no_grad()
def patterns(
    specimen: Specimen, sentences: Sentences
) -> Float[Tensor, "sentence head query key"]:
    """Where every head attends."""
    found = []
    for part in parts(sentences):
        with record(specimen.model, [PATTERN]) as seen:
            specimen.model(part.tokens(specimen.model.vocabulary))
        found.append(seen[PATTERN])
    return torch.cat(found)


def parts(sentences: Sentences) -> list[Sentences]:
    """The sentences in parts that fit into memory."""
    weights = 2 * sentences.length**2
    return list(sentences.chunks(max(1, AT_ONCE // weights)))


def _edited(
    specimen: Specimen, part: Sentences, edit: PatternEdit | None
) -> AbstractContextManager[None]:
    if edit is None:
        return nullcontext()
    return intervene(specimen.model, {PATTERN: lambda pattern: edit(pattern, part)})
