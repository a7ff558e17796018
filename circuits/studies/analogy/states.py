"""Activations that the study compares: values of entities, states of GPT-2."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.interventions.part import column
from circuits.interventions.passes import activations
from circuits.sites import Site
from probes import alignment
from probes.alignment import paired_cosine, shifted_pair_cosine
from trained.task import Batch


def state(model: Any, prompts: Batch, site: Site, role: str) -> Tensor:
    """Activations at the position of a role, example by example."""
    rows = torch.arange(len(prompts), device=prompts.tokens.device)
    return activations(model, prompts, [site])[site][rows, column(prompts, role)]


def entity_values(model: Any, prompts: Batch) -> Float[Tensor, "pair d_model"]:
    """V z of each prompt's entity, in the one-layer block."""
    return state(model, prompts, Site("value", 0), "entity")[:, 0]


def final_states(model: Any, prompts: Batch) -> Float[Tensor, "pair d_model"]:
    """GPT-2's states after the final norm at the last token."""
    last = Site("resid_post", len(model.blocks) - 1)
    states: Tensor = model.final_norm(state(model, prompts, last, "last"))
    return states


@dataclass(frozen=True)
class Cosines:
    """Mean cosine of matching pairs, raw and centred, beside mismatched ones."""

    raw: float
    centred: float
    shifted: float
    shifted_centred: float

    @classmethod
    def of(cls, source: Tensor, target: Tensor) -> "Cosines":
        """Of the states of sources and targets."""
        apart = alignment.centred(source), alignment.centred(target)
        return cls(
            float(paired_cosine(source, target).mean()),
            float(paired_cosine(*apart).mean()),
            float(shifted_pair_cosine(source, target).mean()),
            float(shifted_pair_cosine(*apart).mean()),
        )
