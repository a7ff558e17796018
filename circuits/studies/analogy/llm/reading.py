"""What a language model makes of "[S] is classified as" for the subjects of facts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.interventions.passes import activations
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from circuits.sites import Site
from probes.alignment import (
    centred_paired_cosine,
    paired_cosine,
    shifted_pair_cosine,
    sparsified,
)
from trained.analogy.facts import Fact

from .data import category_tokens, subjects, written

AT_ONCE = 16
"""Prompts in one pass."""
KEPT = 0.2
"""Share of the MLP's activations that count."""

Pairs = tuple[float, float]
"""Mean cosine of partners, and of shifted pairs."""


@dataclass(frozen=True)
class Reading:
    """One pass over the subjects of some facts.

    Attributes:
        first: share of first subjects whose category beats those of other facts.
        second: the same for the second subjects.
        similarity: raw cosine of a fact's subjects, last token, after the final norm.
        sparse: cosine of their largest MLP activations at the relation's tokens.
    """

    first: float
    second: float
    similarity: Pairs
    sparse: Pairs


def read(model: LanguageModel, facts: Sequence[Fact]) -> Reading:
    """Run the model on the attribution prompts of both subjects."""
    prompts = written(model, subjects(facts))
    parts = [_read(model, chunk) for chunk in prompts.chunks(AT_ONCE)]
    logits, states, active = (torch.cat(part) for part in zip(*parts, strict=True))
    right = successes(logits, category_tokens(model, facts))
    # [fact relation layer d_mlp] -> [relation layer fact d_mlp]
    active = active.movedim(0, 2)
    return Reading(
        first=float(right[0].mean()),
        second=float(right[1].mean()),
        similarity=_cosines(states),
        sparse=_cosines(sparsified(active, KEPT)),
    )


def successes(
    logits: Float[Tensor, "subject d_vocab"], categories: Int[Tensor, " fact"]
) -> Float[Tensor, "2 fact"]:
    """1 where the own category's first token beats those of the others, else 0."""
    best = logits[:, categories].argmax(-1).reshape(2, -1)
    own = torch.arange(len(categories), device=logits.device)
    return (best == own).double()


def alignment(
    model: LanguageModel, choose: Sequence[Fact], judge: Sequence[Fact]
) -> Pairs:
    """Centred cosine of a fact's subjects at their last token, in one layer.

    The layer is the one with the largest excess over shifted pairs on other facts.
    """
    chosen, chosen_null = layer_alignment(model, choose)
    layer = int((chosen - chosen_null).argmax())
    own, null = layer_alignment(model, judge)
    return float(own[layer]), float(null[layer])


def layer_alignment(
    model: LanguageModel, facts: Sequence[Fact]
) -> tuple[Float[Tensor, " layer"], Float[Tensor, " layer"]]:
    """The same after every block, for partners and for shifted pairs."""
    prompts = written(model, subjects(facts))
    parts = [_subject_states(model, chunk) for chunk in prompts.chunks(AT_ONCE)]
    first, second = torch.cat(parts, 1).chunk(2, 1)
    shifted = second.roll(-1, 1)
    return (
        centred_paired_cosine(first, second).mean(1),
        centred_paired_cosine(first, shifted).mean(1),
    )


def _read(model: LanguageModel, prompts: Prompts) -> tuple[Tensor, Tensor, Tensor]:
    last_layer = Site("resid_post", model.n_layers - 1)
    mlps = [Site("mlp_act", layer) for layer in range(model.n_layers)]
    seen = activations(model, prompts, [Site("logits"), last_layer, *mlps])
    rows = torch.arange(len(prompts.tokens), device=model.device)
    relation = prompts.role("relation")
    return (
        seen[Site("logits")][rows, prompts.last],
        model.readout.final_norm(seen[last_layer][rows, prompts.last]),
        torch.stack([seen[site][rows[:, None], relation] for site in mlps], 2),
    )


def _subject_states(
    model: LanguageModel, prompts: Prompts
) -> Float[Tensor, "layer subject d_model"]:
    sites = [Site("resid_post", layer) for layer in range(model.n_layers)]
    seen = activations(model, prompts, sites)
    rows = torch.arange(len(prompts.tokens), device=model.device)
    # Shorter names repeat their last token, so the last column always holds it.
    at = prompts.role("subject")[:, -1]
    return torch.stack([seen[site][rows, at] for site in sites])


def _cosines(states: Float[Tensor, "*batch subject width"]) -> Pairs:
    """Mean over facts and all else; first subjects come before second ones."""
    first, second = states.chunk(2, -2)
    own, shifted = paired_cosine(first, second), shifted_pair_cosine(first, second)
    return float(own.mean()), float(shifted.mean())
