"""Alignment from layer to layer, of inputs that share a label and of others."""

from itertools import combinations
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.passes import activations
from circuits.sites import Site
from probes.alignment import paired_cosine, shifted_pair_cosine
from trained.analogy.task import Conclusions
from trained.task import Batch

from .states import final_states, state

Curve = Float[Tensor, "layer _"]


def linear_curves(model: Any, per_label: int) -> tuple[Curve, Curve]:
    """Every pair of inputs with one label, and pairs under shifted labels.

    Args:
        model: the deep linear network.
        per_label: inputs that share a label; they follow each other.
    """
    inputs = Batch(*_numbers(model))
    sites = [Site("resid_pre", 0)]
    sites += [Site("resid_post", layer) for layer in range(len(model.blocks))]
    seen = activations(model, inputs, sites)
    return _by_label(torch.stack([seen[site][:, 0] for site in sites]), per_label)


def labelled_curves(model: Any, per_label: int) -> tuple[Curve, Curve]:
    """The same of GPT-2 on single tokens, from the embedding to the final norm."""
    inputs = Batch(*_numbers(model))
    sites = [Site("resid_post", layer) for layer in range(len(model.blocks))]
    after = [state(model, inputs, site, "last") for site in sites]
    states = [model.W_E, *after, final_states(model, inputs)]
    return _by_label(torch.stack(states), per_label)


def gpt_curves(model: Any, asked: Conclusions, role: str) -> tuple[Curve, Curve]:
    """Source and target, and shifted pairs, from the token through every block.

    The first point is the token's embedding: positions are the same for all.

    Args:
        model: GPT-2.
        asked: whose sources and targets.
        role: the position: `entity` or `last`.
    """
    sites = [Site("resid_post", layer) for layer in range(len(model.blocks))]

    def states(prompts: Batch) -> Tensor:
        tokens = prompts.tokens.gather(1, prompts.role(role))[:, 0]
        after = [state(model, prompts, site, role) for site in sites]
        return torch.stack([model.W_E[tokens], *after])

    source, target = states(asked.known), states(asked.test)
    return paired_cosine(source, target), shifted_pair_cosine(source, target)


def _by_label(
    states: Float[Tensor, "layer input d_model"], per_label: int
) -> tuple[Curve, Curve]:
    nth = [states[:, i::per_label] for i in range(per_label)]
    same = [paired_cosine(a, b) for a, b in combinations(nth, 2)]
    return torch.cat(same, -1), shifted_pair_cosine(nth[0], nth[1])


def _numbers(model: Any) -> tuple[Tensor, Tensor]:
    """Every input once; what it should be answered with is not asked."""
    numbers = torch.arange(len(model.W_E), device=model.W_E.device)
    return numbers[:, None], numbers
