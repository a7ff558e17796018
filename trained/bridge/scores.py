"""Losses and metrics of the bridge models, written so that seeds can be stacked."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from trained.decoder import Decoder
from trained.task import Batch

from .data import UNLABELLED, Facts
from .embmlp import EmbMLP

Model = EmbMLP | Decoder
"""Either model of the study."""


def fact_loss(model: Model, facts: Facts) -> Float[Tensor, ""]:
    """Mean cross-entropy over the labelled positions."""
    logits = model(facts.tokens, offset=facts.offset)
    flat, targets = logits.flatten(0, 1), facts.targets.flatten()
    return cross_entropy(flat, targets, ignore_index=UNLABELLED)


def accuracy(
    model: Model,
    data: Mapping[str, Batch],
    *,
    name: str,
    among: slice = slice(None),
) -> Float[Tensor, ""]:
    """Share of prompts whose best token, among some, is the target, in [0, 1]."""
    batch = data[name]
    best = model(batch.tokens)[:, -1, among].argmax(-1) + (among.start or 0)
    return (best == batch.targets).float().mean()


def first_hop_states(
    model: Decoder, data: Mapping[str, Batch], *, n_blocks: int = 1
) -> tuple[Float[Tensor, "pair d_model"], Float[Tensor, "pair d_model"]]:
    """Residuals after some blocks at the end of [a_i, r1_k] and of [b_{k,i}]."""
    ends = [
        model.through(model.embed(data[name].tokens), stop=n_blocks)[:, -1]
        for name in ("hop1", "zero_hop")
    ]
    return ends[0], ends[1]


def net_alignment(model: Decoder, data: Mapping[str, Batch]) -> Float[Tensor, ""]:
    """Mean cosine of (a_i, r1_k) with its bridge minus that with all others."""
    subjects, bridges = first_hop_states(model, data)
    cosines = normalize(subjects, dim=-1) @ normalize(bridges, dim=-1).mT
    own, count = cosines.diagonal().mean(), len(subjects)
    return (own - cosines.mean()) * count / (count - 1)


def nearest_bridge(model: Decoder, data: Mapping[str, Batch]) -> Float[Tensor, ""]:
    """Share of (a_i, r1_k) whose nearest bridge state is its own, in [0, 1]."""
    subjects, bridges = first_hop_states(model, data)
    cosines = normalize(subjects, dim=-1) @ normalize(bridges, dim=-1).mT
    own = torch.arange(len(subjects), device=cosines.device)
    return (cosines.argmax(-1) == own).float().mean()
