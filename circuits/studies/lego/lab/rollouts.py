"""Where a model looks while it writes its own answers, clause by clause."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.hooks import attached
from circuits.sites import Site
from trained.lego.task import Sentences, rollout

from .models import Specimen


@torch.no_grad()
def rollout_mass(
    specimen: Specimen, sentences: Sentences
) -> tuple[Sentences, Float[Tensor, "sentence step predicate"]]:
    """The sentences with the model's own answers, and its attention meanwhile.

    Args:
        specimen: a model of any kind.
        sentences: the predicates and answer 0 are read, the rest is written.

    Returns:
        What `rollout` gives, and at every step the mass on each predicate, where it is
        written; mean over heads.
    """
    masses: list[Tensor] = []

    def see(pattern: Tensor) -> None:
        masses.append(pattern[:, :, -1, : sentences.length].mean(1).cpu())

    model = specimen.model
    with attached(model, {Site("pattern"): see}):
        written = rollout(model, sentences, model.vocabulary)
    return written, torch.stack(masses, 1)


def found_clauses(
    specimen: Specimen, sentences: Sentences
) -> Bool[Tensor, "sentence step"]:
    """At which steps of a rollout the predicate that is due gets the most attention.

    Due is the one that says what becomes of the variable that the model has just
    written; if it wrote one that no predicate asks for, none is. A tie finds nothing.
    """
    written, mass = rollout_mass(specimen, sentences)
    predicates = sentences.predicates(specimen.model.vocabulary)
    due = predicates[:, None, :, 2] == written.variables[:, :-1, None]
    on_it = mass.masked_fill(~due, -torch.inf).amax(-1)
    on_others = mass.masked_fill(due, -torch.inf).amax(-1)
    return due.any(-1) & (on_it > on_others)
