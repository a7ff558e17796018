"""What is kept of a pass over few-shot prompts: the last token, who looks where."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.hooks import record
from circuits.models.language_model import LanguageModel
from circuits.models.prompts import Prompts
from circuits.sites import Site
from probes.attention import attention_mass

from .data import N_PAIRS, Episode, written

AT_ONCE = 16
"""Prompts in one pass."""


@dataclass(frozen=True)
class Reading:
    """One pass over some episodes.

    Attributes:
        episodes: what was read.
        residuals: the residual stream at the last token, by the number of blocks
            behind it.
        logits: the next token's logits.
        to_subjects: attention of the last token to the subject of each demonstration.
        to_answers: the same to the answers.
        own_subject: attention of an answer to its own subject minus the mean to earlier
            subjects, mean over the answers that have any.
    """

    episodes: tuple[Episode, ...]
    residuals: Float[Tensor, "depth example d_model"]
    logits: Float[Tensor, "example d_vocab"]
    to_subjects: Float[Tensor, "layer example head pair"]
    to_answers: Float[Tensor, "layer example head pair"]
    own_subject: Float[Tensor, "layer example head"]


@torch.no_grad()
def read(model: LanguageModel, several: Sequence[Episode]) -> Reading:
    """Run the model on episodes and keep what the signals need, on the CPU."""
    parts = [
        _read(model, written(model, several[start : start + AT_ONCE]))
        for start in range(0, len(several), AT_ONCE)
    ]
    residuals, logits, subjects, answers, binding = zip(*parts, strict=True)
    return Reading(
        tuple(several),
        torch.cat(residuals, 1),
        torch.cat(logits),
        torch.cat(subjects, 1),
        torch.cat(answers, 1),
        torch.cat(binding, 1),
    )


def _read(model: LanguageModel, prompts: Prompts) -> tuple[Tensor, ...]:
    layers = range(model.n_layers)
    states = [Site("resid_pre"), *(Site("resid_post", layer) for layer in layers)]
    patterns = [Site("pattern", layer) for layer in layers]
    with record(model, [*states, *patterns]) as seen:
        logits = model(prompts.tokens, prompts.mask)
    rows = torch.arange(len(prompts.targets), device=logits.device)
    last = [seen[site][rows, prompts.last] for site in states]
    looks = [last_looks(seen[site], prompts) for site in patterns]
    return (
        torch.stack(last).cpu(),
        logits[rows, prompts.last].cpu(),
        torch.stack([subjects for subjects, _ in looks]).cpu(),
        torch.stack([answers for _, answers in looks]).cpu(),
        torch.stack([own_subject(seen[site], prompts) for site in patterns]).cpu(),
    )


def last_looks(
    pattern: Float[Tensor, "batch head query key"], prompts: Prompts
) -> tuple[Float[Tensor, "batch head pair"], Float[Tensor, "batch head pair"]]:
    """Attention of the last token to the subjects and to the answers, spans summed."""
    rows = torch.arange(len(pattern), device=pattern.device)
    looks = pattern[rows, :, prompts.last]
    subjects, answers = (
        torch.stack(
            [
                attention_mass(looks, prompts.role(f"{name}{i}")[:, None])
                for i in range(N_PAIRS)
            ],
            -1,
        )
        for name in ("subject", "answer")
    )
    return subjects, answers


def own_subject(
    pattern: Float[Tensor, "batch head query key"], prompts: Prompts
) -> Float[Tensor, "batch head"]:
    """Attention of an answer to its subject beyond that to earlier ones, in [-1, 1].

    Mean over answers i > 0 of A[a_i, s_i] - mean over j < i of A[a_i, s_j], from the
    last token of the answer.
    """
    rows = torch.arange(len(pattern), device=pattern.device)
    excess = []
    for i in range(1, N_PAIRS):
        looks = pattern[rows, :, prompts.role(f"answer{i}")[:, -1]]
        to = [
            attention_mass(looks, prompts.role(f"subject{j}")[:, None])
            for j in range(i + 1)
        ]
        excess.append(to[i] - torch.stack(to[:i]).mean(0))
    return torch.stack(excess).mean(0)
